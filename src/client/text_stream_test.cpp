// SPDX-License-Identifier: Apache-2.0
#include "client/text_stream.h"

#include "client/fake_server.h"

#include <gtest/gtest.h>

namespace sublet::client {
namespace {

using test::FakeRequest;
using test::FakeServer;
using test::ScratchDir;

struct TextStreamTest : ::testing::Test {
  ScratchDir dir;
  std::string path = dir.path() + "/s.sock";
  TextStream stream{Endpoint{path}};

  std::string all() {
    std::string text;
    while (const auto piece = stream.next(std::chrono::seconds(10))) text += *piece;
    return text;
  }
};

TEST_F(TextStreamTest, ReadsChunks) {
  FakeServer server(path, [](const FakeRequest&) {
    return FakeServer::Out{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab\nc\r\n2\r\nd\n\r\n0\r\n\r\n"};
  });
  ASSERT_TRUE(stream.open("/log"));
  EXPECT_EQ(all(), "ab\ncd\n");
  EXPECT_TRUE(stream.complete());
}

TEST_F(TextStreamTest, ReadsAnAnswerOfKnownLength) {
  FakeServer server(path, [](const FakeRequest&) { return FakeServer::Out{FakeServer::json(200, "text")}; });
  ASSERT_TRUE(stream.open("/log"));
  EXPECT_EQ(all(), "text");
  EXPECT_TRUE(stream.complete());
}

TEST_F(TextStreamTest, ReadsUntilTheConnectionIsClosedAndTellsOfSilence) {
  FakeServer server(path, [](const FakeRequest& request) {
    return FakeServer::Out{"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc",
                           request.line().find("/end") != std::string::npos};
  });
  ASSERT_TRUE(stream.open("/log"));
  EXPECT_EQ(stream.next(std::chrono::seconds(10)), "abc");
  EXPECT_EQ(stream.next(std::chrono::milliseconds(1)), "");
  EXPECT_FALSE(stream.complete());
  stream.close();
  ASSERT_TRUE(stream.open("/end"));
  EXPECT_EQ(all(), "abc");
  EXPECT_TRUE(stream.complete());
}

TEST_F(TextStreamTest, NoticesAStreamThatWasCutOff) {
  FakeServer server(path, [](const FakeRequest&) {
    return FakeServer::Out{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n", true};
  });
  ASSERT_TRUE(stream.open("/log"));
  EXPECT_EQ(all(), "abcd");
  EXPECT_FALSE(stream.complete());
}

TEST_F(TextStreamTest, ReturnsTheRefusal) {
  FakeServer server(path, [](const FakeRequest&) {
    return FakeServer::Out{FakeServer::json(404, R"({"code":"NotFound","detail":"there is no program 'x'"})")};
  });
  const auto opened = stream.open("/log");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().error.code, Code::NotFound);
  EXPECT_EQ(opened.error().error.detail, "there is no program 'x'");
}

TEST_F(TextStreamTest, NoDaemonIsAFailure) { EXPECT_EQ(stream.open("/log").error().kind, FailureKind::no_daemon); }

}  // namespace
}  // namespace sublet::client
