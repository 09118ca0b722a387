// SPDX-License-Identifier: Apache-2.0
#include "pause/webhook.h"

#include "net/connect.h"
#include "proc/test_support.h"

#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>

#include <unistd.h>

namespace sublet::pause {
namespace {

namespace asio = boost::asio;

TEST(Webhook, IsOnThisMachine) {
  const auto tcp = parse_webhook("http://localhost:8080/a/b?c");
  ASSERT_TRUE(tcp.has_value());
  EXPECT_EQ(tcp->host, "127.0.0.1");
  EXPECT_EQ(tcp->port, 8080);
  EXPECT_EQ(tcp->path, "/a/b?c");
  EXPECT_EQ(parse_webhook("http://[::1]:80")->host, "::1");
  EXPECT_EQ(parse_webhook("http://[::1]:80")->path, "/");
  for (const char* url : {"http://example.org:80/", "http://0.0.0.0:80/", "http://127.0.0.1/", "http://127.0.0.1:0/",
                          "http://127.0.0.1:99999/", "https://127.0.0.1:80/", "127.0.0.1:80", "unix:", "unix:/",
                          "http://127.0.0.1:80/ x", "http://127.0.0.1:80/\r\nHost: evil", "http://127.0.0.1@evil:80/"})
    EXPECT_FALSE(parse_webhook(url)) << url;
}

TEST(Webhook, OrAUnixSocket) {
  const auto with_path = parse_webhook("unix:/run/app.sock:/yield");
  ASSERT_TRUE(with_path.has_value());
  EXPECT_EQ(with_path->socket, "/run/app.sock");
  EXPECT_EQ(with_path->path, "/yield");
  EXPECT_EQ(parse_webhook("unix:///run/app.sock")->socket, "/run/app.sock");
  EXPECT_EQ(parse_webhook("unix:///run/app.sock")->path, "/");
  EXPECT_FALSE(parse_webhook("unix:/" + std::string(200, 'x')));
}

// Calls a server that reads one request and gives this answer. The connection stays open.
WebhookReply reply_of(const std::string& answer, Duration at_most = std::chrono::minutes(1)) {
  using asio::local::stream_protocol;
  proc::TempDir dir;
  const std::string path = dir.path("app.sock");
  asio::io_context io;
  stream_protocol::acceptor acceptor(io, stream_protocol::endpoint(path));
  stream_protocol::socket served(io);
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        (void)co_await acceptor.async_accept(served, net::quiet);
        std::array<char, 4096> got;
        (void)co_await served.async_read_some(asio::buffer(got), net::quiet);
        (void)co_await asio::async_write(served, asio::buffer(answer), net::quiet);
      },
      asio::detached);
  WebhookReply reply;
  asio::co_spawn(io, call_webhook(io, "unix:" + path + ":/yield", ::getuid(), "{}", at_most),
                 [&](const std::exception_ptr&, WebhookReply given) { reply = std::move(given), acceptor.close(); });
  io.run();
  return reply;
}

TEST(Webhook, AnAnswerIsReadUpToItsLength) {
  const WebhookReply reply = reply_of("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "{}");
  EXPECT_TRUE(reply.told);
}

TEST(Webhook, AServerThatSaysNothingOrSpeaksNoHttpMayKnowOfTheCall) {
  const WebhookReply silent = reply_of("", std::chrono::milliseconds(1));
  EXPECT_EQ(silent.status, 0);
  EXPECT_EQ(silent.problem, "it did not answer within 1 ms");
  EXPECT_TRUE(silent.told);
  const WebhookReply foreign = reply_of("220 mail\r\n\r\n");
  EXPECT_EQ(foreign.status, 0);
  EXPECT_NE(foreign.problem.find("it did not answer: "), std::string::npos) << foreign.problem;
  EXPECT_TRUE(foreign.told);
}

TEST(Webhook, AServerThatIsAwayKnowsOfNothing) {
  asio::io_context io;
  WebhookReply reply;
  asio::co_spawn(io, call_webhook(io, "unix:/no/such.sock", ::getuid(), "{}", std::chrono::minutes(1)),
                 [&](const std::exception_ptr&, WebhookReply given) { reply = std::move(given); });
  io.run();
  EXPECT_EQ(reply.problem, "cannot connect: No such file or directory");
  EXPECT_FALSE(reply.told);
}

}  // namespace
}  // namespace sublet::pause
