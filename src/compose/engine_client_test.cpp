// SPDX-License-Identifier: Apache-2.0
#include "compose/engine_client.h"

#include "base/fd.h"
#include "proc/test_support.h"

#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <thread>

namespace sublet::compose {
namespace {

namespace asio = boost::asio;

// Gives one answer to each connection, in order. An empty answer: none is sent until the client leaves.
class FalseEngine {
 public:
  // `hold`: a connection stays open after its answer, until the client leaves.
  FalseEngine(const std::string& path, std::vector<std::string> answers, bool hold = false)
      : answers_(std::move(answers)), hold_(hold) {
    listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~FalseEngine() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  const std::vector<std::string>& asked() const { return asked_; }

 private:
  void serve() {
    for (const std::string& answer : answers_) {
      const Fd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection) return;
      char text[4096];
      const ssize_t got = ::recv(connection.get(), text, sizeof text, 0);
      const std::string request(text, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
      asked_.push_back(request.substr(0, request.find("\r\n")));
      if (!answer.empty()) ::send(connection.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      if (hold_ || answer.empty()) (void)::recv(connection.get(), text, sizeof text, 0);
    }
  }

  std::vector<std::string> answers_, asked_;
  bool hold_;
  Fd listener_;
  std::thread thread_;
};

std::string answer(int status, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(status) + " Word\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

class EngineClientTest : public ::testing::Test {
 protected:
  template <typename T>
  T run(asio::awaitable<T> work) {
    std::optional<T> result;
    asio::co_spawn(io_, std::move(work), [&](const std::exception_ptr&, T value) { result = std::move(value); });
    io_.restart();
    io_.run();
    return std::move(*result);
  }
  std::string path(const std::string& name) const { return dir_.path(name); }

  proc::TempDir dir_;
  asio::io_context io_;
};

TEST_F(EngineClientTest, AnswersAndErrorsOfTheEngine) {
  struct Case {
    std::string answer;
    std::optional<Code> code;
    std::string text;  // the document, or a part of the error
  };
  int number = 0;
  for (const Case& one : std::vector<Case>{
           {answer(200, "{\"a\":[1]}"), std::nullopt, "{\"a\":[1]}"},
           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n", std::nullopt,
            "[1,2]"},
           {answer(404, "{\"message\":\"no such container\"}"), Code::NotFound, "says 404: no such container"},
           {answer(500, "{\"message\":\"disk\\u001b[31m\"}"), Code::Unavailable, "says 500: disk\\x1b[31m"},
           {answer(503, "plain"), Code::Unavailable, "says 503: plain"},
           {answer(200, "no json"), Code::Unavailable, "is no JSON"},
           {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", Code::Unavailable, "closed the connection"},
           {"nonsense\r\n\r\n", Code::Unavailable, "cannot be reached"},
           {"", Code::Unavailable, "did not answer for 200 ms"},
       }) {
    const std::string socket = path("s" + std::to_string(++number));
    FalseEngine engine(socket, {one.answer});
    EngineClient client(socket, std::chrono::milliseconds(200));
    const auto document = run(client.get("/x"));
    if (one.code) {
      ASSERT_FALSE(document) << one.text;
      EXPECT_EQ(document.error().code, *one.code) << one.text;
      EXPECT_NE(document.error().detail.find(one.text), std::string::npos) << document.error().detail;
    } else {
      ASSERT_TRUE(document) << document.error().detail;
      EXPECT_EQ(document->root.dump(), one.text);
    }
  }
}

TEST_F(EngineClientTest, TheOldestVersionThatTheEngineHasIsAsked) {
  struct Case {
    std::string oldest, newest, expected;  // the path that is asked; or the error
  };
  int number = 0;
  for (const Case& one : std::vector<Case>{{"1.12", "1.41", "GET /v1.41/info HTTP/1.1"},
                                           {"1.24", "1.51", "GET /v1.41/info HTTP/1.1"},
                                           {"1.44", "1.52", "GET /v1.44/info HTTP/1.1"},
                                           {"1.12", "1.40", "has API version 1.40, and 1.41 is needed"},
                                           {"", "", "has API version ?, and 1.41 is needed"}}) {
    const std::string socket = path("v" + std::to_string(++number));
    const std::string version =
        R"({"Version":"9.9","ApiVersion":")" + one.newest + R"(","MinAPIVersion":")" + one.oldest + "\"}";
    FalseEngine engine(socket, {answer(200, version), answer(200, "{}")});
    EngineClient client(socket);
    const auto found = run(client.negotiate());
    if (!found) {
      EXPECT_NE(found.error().detail.find(one.expected), std::string::npos) << found.error().detail;
      continue;
    }
    EXPECT_EQ(*found, "9.9");
    ASSERT_TRUE(run(client.get("/info")));
    EXPECT_EQ(engine.asked(), (std::vector<std::string>{"GET /version HTTP/1.1", one.expected}));
  }
}

TEST_F(EngineClientTest, AStreamComesInPiecesAndEndsByEitherSide) {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  struct Case {
    std::string answer;
    bool go_on;
    std::string got, problem;
  };
  int number = 0;
  for (const Case& one : std::vector<Case>{
           {head + "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", true, "abc", ""},
           {"HTTP/1.1 200 OK\r\n\r\nabc", true, "abc", ""},
           {head + "2\r\nab\r\n", true, "ab", "closed the connection"},
           {head + "2\r\nab\r\n1\r\nc\r\n", false, "ab", ""},
           {answer(409, "{\"message\":\"no logs\"}"), true, "", "says 409: no logs"},
       }) {
    const std::string socket = path("t" + std::to_string(++number));
    FalseEngine engine(socket, {one.answer});
    EngineClient client(socket);
    std::string got;
    bool begun = false;
    net::Reader reader;
    reader.begun = [&] { begun = true; };
    reader.piece = [&](std::string_view piece) -> asio::awaitable<bool> {
      got += piece;
      co_return one.go_on;
    };
    const Status ended = run(client.stream("/events", std::move(reader), nullptr));
    EXPECT_TRUE(one.go_on ? got == one.got : got.starts_with(one.got)) << got;
    EXPECT_EQ(begun, one.problem.find("says") == std::string::npos);
    EXPECT_EQ(ended.has_value(), one.problem.empty()) << one.answer;
    if (ended) continue;
    EXPECT_NE(ended.error().detail.find(one.problem), std::string::npos) << ended.error().detail;
  }
}

TEST_F(EngineClientTest, AStreamCanBeStopped) {
  const std::string socket = path("stop");
  FalseEngine engine(socket, {"HTTP/1.1 200 OK\r\n\r\n"}, true);
  EngineClient client(socket);
  std::function<void()> stop;
  net::Reader reader;
  reader.begun = [&] { asio::post(io_, stop); };
  reader.piece = [](std::string_view) -> asio::awaitable<bool> { co_return true; };
  const Status ended = run(client.stream("/events", std::move(reader), &stop));
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().detail, "the reading was ended");
}

}  // namespace
}  // namespace sublet::compose
