// SPDX-License-Identifier: Apache-2.0
#include "net/http.h"

#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/error.hpp>

namespace sublet::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Gives one answer to one connection on 127.0.0.1.
class HttpTest : public ::testing::Test {
 protected:
  // `hold`: the connection stays open after the answer.
  Answer exchange(const std::string& text, Limits limits, Hooks hooks = {}, bool hold = false) {
    tcp::acceptor acceptor(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    Address address;
    address.host = "localhost";
    address.port = acceptor.local_endpoint().port();
    tcp::socket served(io_);
    asio::co_spawn(
        io_,
        [&]() -> asio::awaitable<void> {
          (void)co_await acceptor.async_accept(served, quiet);
          std::array<char, 4096> got;
          const auto [error, size] = co_await served.async_read_some(asio::buffer(got), quiet);
          asked_.assign(got.data(), size);
          co_await asio::async_write(served, asio::buffer(text), quiet);
          if (!hold) served.close();
        },
        asio::detached);
    Request request{.method = "POST", .target = "/x?y", .headers = {{"Content-Type", "text/plain"}}, .body = "hello"};
    std::optional<Answer> answer;
    asio::co_spawn(io_, call(address, std::move(request), limits, std::move(hooks)),
                   [&](const std::exception_ptr&, Answer given) { answer = std::move(given), acceptor.close(); });
    io_.restart();
    io_.run();
    return std::move(*answer);
  }

  asio::io_context io_;
  std::string asked_;
};

const std::string hello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

TEST_F(HttpTest, TheRequestHasItsHeadersAndTheAnswerItsBody) {
  const Answer answer = exchange(hello, {.at_most = {}, .body = 5});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "hello");
  EXPECT_FALSE(answer.is_cut);
  EXPECT_FALSE(answer.error);
  EXPECT_TRUE(asked_.starts_with("POST /x?y HTTP/1.1\r\nHost: localhost:")) << asked_;
  for (const char* part : {"Connection: close\r\n", "Content-Type: text/plain\r\n", "Content-Length: 5\r\n\r\nhello"})
    EXPECT_NE(asked_.find(part), std::string::npos) << asked_;
}

TEST_F(HttpTest, ALongBodyIsCut) {
  const Answer answer = exchange(hello, {.at_most = {}, .body = 4});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "hell");
  EXPECT_TRUE(answer.is_cut);
}

TEST_F(HttpTest, ABodyThatIsNotReadNeedNotCome) {
  const Answer answer = exchange("HTTP/1.1 429 Wait\r\nRetry-After: 7\r\nContent-Length: 9\r\n\r\n", {}, {}, true);
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.retry_after, std::chrono::seconds(7));
  EXPECT_FALSE(answer.error);
}

TEST_F(HttpTest, AnErrorTellsTheStepAndWhatCameBeforeIt) {
  const Answer early = exchange("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", {.at_most = {}, .body = 9});
  EXPECT_EQ(early.status, 200);
  EXPECT_EQ(early.body, "hel");
  EXPECT_TRUE(is_early_end(early.error));
  const Answer foreign = exchange("220 mail\r\n\r\n", {});
  EXPECT_EQ(foreign.status, 0);
  EXPECT_TRUE(foreign.error && !is_early_end(foreign.error));
  EXPECT_EQ(foreign.step, Answer::Step::receive);
  const Answer silent = exchange("", {.at_most = std::chrono::milliseconds(50)}, {}, true);
  EXPECT_EQ(silent.error, boost::beast::error::timeout);
}

TEST_F(HttpTest, AServerThatIsNotAdmittedGetsNothing) {
  Hooks hooks;
  hooks.admits = [](int socket) { return socket < 0; };
  const Answer answer = exchange(hello, {}, std::move(hooks));
  EXPECT_EQ(answer.error, boost::system::errc::permission_denied);
  EXPECT_EQ(answer.step, Answer::Step::connect);
  EXPECT_EQ(asked_, "");
}

TEST_F(HttpTest, ACallCanBeStopped) {
  std::function<void()> stop;
  Hooks hooks;
  hooks.stop = &stop;
  hooks.admits = [&](int) { return asio::post(io_, stop), true; };
  EXPECT_EQ(exchange("", {}, std::move(hooks), true).error, asio::error::operation_aborted);
}

TEST(Address, IsShownWithItsPort) {
  Address address;
  address.host = "::1";
  address.port = 443;
  EXPECT_EQ(address.shown(), "[::1]:443");
  EXPECT_EQ(address.host_header(), "[::1]:443");
  EXPECT_TRUE(address.is_loopback());
  address.tls = true;
  EXPECT_EQ(address.host_header(), "[::1]");
  address.host = "ntfy.sh";
  EXPECT_EQ(address.host_header(), "ntfy.sh");
  EXPECT_FALSE(address.is_loopback());
  address.socket = "/run/app.sock";
  EXPECT_EQ(address.shown(), "/run/app.sock");
  EXPECT_EQ(address.host_header(), "localhost");
}

}  // namespace
}  // namespace sublet::net
