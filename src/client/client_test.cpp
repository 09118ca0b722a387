// SPDX-License-Identifier: Apache-2.0
#include "client/client.h"

#include "client/event_stream.h"
#include "client/fake_server.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace sublet::client {
namespace {

using test::FakeRequest;
using test::FakeServer;
using test::ScratchDir;
using namespace std::chrono_literals;

struct ClientTest : ::testing::Test {
  ScratchDir dir;
  std::string path = dir.path() + "/s.sock";
  Client client{Endpoint{path}};
};

TEST_F(ClientTest, ReadsAnAnswerAndKeepsTheConnection) {
  FakeServer server(path, [](const FakeRequest&) { return FakeServer::Out{FakeServer::json(200, R"({"a":1})")}; });
  for (int i = 0; i < 3; ++i) {
    auto reply = client.get("/v1/status");
    ASSERT_TRUE(reply) << reply.error().error.detail;
    EXPECT_EQ(reply->status, 200);
    EXPECT_EQ(parse(*reply).value()["a"], 1);
  }
  const auto seen = server.seen();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[2].connection, 1);
  EXPECT_EQ(seen[0].line(), "GET /v1/status HTTP/1.1");
}

TEST_F(ClientTest, ReadsAnAnswerThatComesByteByByteAndChunked) {
  FakeServer server(path, [](const FakeRequest&) {
    return FakeServer::Out{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":2}\r\n0\r\n\r\n"};
  });
  auto reply = client.get("/");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->text, R"({"a":2})");
}

TEST_F(ClientTest, ReadsALongAnswer) {
  const std::string text = '"' + std::string(3'000'000, 'x') + '"';
  FakeServer server(path, [&](const FakeRequest&) { return FakeServer::Out{FakeServer::json(200, text)}; });
  auto reply = client.get("/");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->text, text);
}

TEST_F(ClientTest, SendsALongBody) {
  FakeServer server(
      path, [](const FakeRequest& r) { return FakeServer::Out{FakeServer::json(200, std::to_string(r.body.size()))}; });
  auto reply = client.post("/", std::string(2'000'000, 'y'));
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->text, "2000002");
}

TEST_F(ClientTest, TurnsAProblemDocumentIntoAnError) {
  FakeServer server(path, [](const FakeRequest&) {
    return FakeServer::Out{
        FakeServer::json(422, R"({"code":"TooLarge","detail":"30 GiB never fits","hint":"ask less"})")};
  });
  auto reply = client.post("/v1/leases", {{"vram_bytes", 1}});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, FailureKind::answered);
  EXPECT_EQ(reply.error().error.code, Code::TooLarge);
  EXPECT_EQ(reply.error().error.detail, "30 GiB never fits");
  EXPECT_EQ(reply.error().error.hint, "ask less");
  EXPECT_EQ(reply.error().http_status, 422);
}

TEST_F(ClientTest, AProblemThatIsNotJsonStillSaysItsStatus) {
  FakeServer server(path, [](const FakeRequest&) { return FakeServer::Out{FakeServer::json(418, "<html>")}; });
  auto reply = client.get("/");
  ASSERT_FALSE(reply);
  EXPECT_NE(reply.error().error.detail.find("418"), std::string::npos);
}

TEST_F(ClientTest, NoDaemonIsToldFromALostOne) {
  auto nobody = client.get("/");
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().kind, FailureKind::no_daemon);
  FakeServer server(path, [](const FakeRequest&) { return FakeServer::Out{"", true}; });
  auto lost = client.get("/");
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().kind, FailureKind::lost);
}

TEST_F(ClientTest, ASocketWithoutAListenerIsNoDaemon) {
  {
    FakeServer server(path, [](const FakeRequest&) { return FakeServer::Out{}; });
  }
  Fd stale(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ASSERT_EQ(::bind(stale.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  auto reply = client.get("/");
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, FailureKind::no_daemon);
}

TEST_F(ClientTest, AnAnswerThatIsNotHttpIsLost) {
  FakeServer server(path, [](const FakeRequest&) { return FakeServer::Out{"hello there, this is no HTTP\r\n\r\n"}; });
  auto reply = client.get("/");
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, FailureKind::lost);
}

TEST_F(ClientTest, ABrokenKeepAliveConnectionIsReplacedWithTheSameKey) {
  FakeServer server(path, [](const FakeRequest& r) {
    if (r.connection == 1 && r.line().starts_with("POST")) return FakeServer::Out{"", true};
    return FakeServer::Out{FakeServer::json(200, "{}")};
  });
  ASSERT_TRUE(client.get("/"));
  ASSERT_TRUE(client.post("/v1/leases", nlohmann::json::object()));
  const auto seen = server.seen();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[2].connection, 2);
  EXPECT_FALSE(seen[1].header("Idempotency-Key").empty());
  EXPECT_EQ(seen[1].header("Idempotency-Key"), seen[2].header("Idempotency-Key"));
}

TEST_F(ClientTest, SilenceEndsWithTheTimeout) {
  FakeServer server(path, [](const FakeRequest&) { return FakeServer::Out{}; });
  auto reply = client.call({"GET", "/", {}, {}, {}}, 20ms);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, FailureKind::lost);
}

TEST_F(ClientTest, InsistingOutlivesADaemonThatComesLater) {
  // The interrupt's descriptor is always readable. Its handler runs at each wait, and starts the server at the third.
  Fd event(::eventfd(1, EFD_CLOEXEC));
  std::unique_ptr<FakeServer> server;
  int woken = 0;
  client.set_interrupt({event.get(), [&] {
                          if (++woken == 3) {
                            server = std::make_unique<FakeServer>(path, [](const FakeRequest& r) {
                              if (r.connection < 3) return FakeServer::Out{"", true};
                              if (r.connection == 3)
                                return FakeServer::Out{FakeServer::json(503, R"({"code":"Unavailable"})"), true};
                              return FakeServer::Out{FakeServer::json(200, "7")};
                            });
                          }
                          return true;
                        }});
  auto reply = client.insist({"POST", "/x", "{}", {}, {}}, {});
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->text, "7");
  const auto seen = server->seen();
  ASSERT_EQ(seen.size(), 4u);
  for (const auto& request : seen) EXPECT_EQ(request.header("Idempotency-Key"), seen[0].header("Idempotency-Key"));
}

TEST_F(ClientTest, InsistingStopsAtItsLimitAndAtARefusal) {
  Patience short_one;
  short_one.limit = 30ms;
  auto nobody = client.insist({"GET", "/", {}, {}, {}}, short_one);
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().kind, FailureKind::no_daemon);
  FakeServer server(path, [](const FakeRequest&) { return FakeServer::Out{FakeServer::json(404, "{}")}; });
  auto refused = client.insist({"GET", "/", {}, {}, {}}, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code, Code::NotFound);
}

TEST_F(ClientTest, AnInterruptCancelsACallAndAPause) {
  FakeServer server(path, [](const FakeRequest&) { return FakeServer::Out{}; });
  Fd event(::eventfd(1, EFD_CLOEXEC));
  client.set_interrupt({event.get(), [] { return false; }});
  auto reply = client.get("/");
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().kind, FailureKind::cancelled);
  EXPECT_FALSE(client.pause(1h));
}

TEST_F(ClientTest, ReachesASocketWhosePathIsTooLongForAnAddress) {
  const std::string deep = dir.path() + "/" + std::string(120, 'd');
  std::filesystem::create_directory(deep);
  FakeServer server(path, [](const FakeRequest&) { return FakeServer::Out{FakeServer::json(200, "1")}; });
  std::filesystem::rename(path, deep + "/s.sock");
  Client far(Endpoint{deep + "/s.sock"});
  EXPECT_TRUE(far.get("/"));
}

TEST(Endpoint, NamesSystemdOnlyWhereItRuns) {
  const ScratchDir dir;
  EXPECT_EQ(start_command(dir.path()), "systemctl start subletd");
  EXPECT_TRUE(start_command(dir.path() + "/none").starts_with("subletd "));
}

TEST_F(ClientTest, ACallToAPartThatIsSwitchedOffIsNotRepeated) {
  int calls = 0;
  FakeServer server(path, [&](const FakeRequest&) {
    const char* passing = R"({"code":"Unavailable","detail":"the store fails"})";
    const char* lasting = R"({"code":"Unavailable","detail":"off","numbers":{"switched_off":1}})";
    return FakeServer::Out{FakeServer::json(503, ++calls == 1 ? passing : lasting)};
  });
  Client client(Endpoint{path});
  client.be_patient({});
  const auto refused = client.post("/v1/sessions", {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.detail, "off");
  EXPECT_FALSE(refused.error().passing());
  EXPECT_EQ(calls, 2);
}

TEST(Endpoint, ReadsUrlsAndPathsAndRefusesOtherTransports) {
  EXPECT_EQ(parse_endpoint("unix:///run/x.sock")->path, "/run/x.sock");
  EXPECT_EQ(parse_endpoint("/run/x.sock")->url(), "unix:///run/x.sock");
  EXPECT_EQ(parse_endpoint("x.sock")->path, std::filesystem::current_path().string() + "/x.sock");
  EXPECT_EQ(parse_endpoint("http://127.0.0.1:80")->url(), "http://127.0.0.1:80");
  EXPECT_EQ(parse_endpoint("http://localhost:4711/")->authority(), "127.0.0.1:4711");
  EXPECT_EQ(parse_endpoint("http://[::1]:4711")->authority(), "[::1]:4711");
  for (const char* wrong : {"https://127.0.0.1:80", "http://192.0.2.1:80", "http://127.0.0.1", "http://127.0.0.1:0",
                            "http://127.0.0.1:80/v1", "http://127.0.0.1.evil.example:80", "unix://", ""}) {
    auto refused = parse_endpoint(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, Code::BadRequest);
    EXPECT_FALSE(refused.error().hint.empty());
  }
}

TEST_F(ClientTest, AnEventStreamIsReadUpToItsEndAndKnowsWhereItWas) {
  FakeServer server(path, [](const FakeRequest& request) {
    EXPECT_EQ(request.line(), "GET /v1/events HTTP/1.1");
    EXPECT_EQ(request.header("Last-Event-ID"), "ab-1");
    return FakeServer::Out{
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        "id: ab-2\nevent: lease\ndata: {\"a\":1}\n\n: alive\nid: ab-5\n\nevent: gap\ndata: {}\n\nid: ab-6\nevent: cut "
        "o",
        true};
  });
  EventStream stream(Endpoint{path});
  ASSERT_TRUE(stream.open("/v1/events", "ab-1"));
  const auto first = stream.next(5s);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->type + first->data, "lease{\"a\":1}");
  EXPECT_EQ(stream.last_id(), "ab-2");
  EXPECT_EQ(stream.next(5s)->type, "gap");
  EXPECT_EQ(stream.last_id(), "ab-5") << "a sign of life moves it on, a gap does not";
  EXPECT_FALSE(stream.next(5s));
}

TEST_F(ClientTest, AnEventStreamThatIsRefusedSaysWhy) {
  FakeServer server(path, [](const FakeRequest&) {
    return FakeServer::Out{"HTTP/1.1 404 Not Found\r\n\r\n{\"code\":\"NotFound\",\"detail\":\"no lease-9\"}", true};
  });
  EventStream stream(Endpoint{path});
  const auto opened = stream.open("/v1/events?lease=lease-9", "");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().error.detail, "no lease-9");
  EXPECT_EQ(opened.error().error.code, Code::NotFound);
}

TEST_F(ClientTest, AnEventStreamThatIsRefusedBeforeItHasAskedSaysWhy) {
  FakeServer server(path, [](const FakeRequest&) {
    return FakeServer::Out{"HTTP/1.1 429 X\r\n\r\n{\"code\":\"Quota\",\"detail\":\"too many connections\"}", true};
  });
  EventStream stream(Endpoint{path});
  // The server refuses while most of the request is not sent yet.
  const auto opened = stream.open("/v1/events HTTP/1.1\r\n\r\n" + std::string(4 << 20, 'x'), "");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().error.detail, "too many connections");
}

TEST_F(ClientTest, AnEventStreamThatWasCutOffIsToldFromOneThatHasEnded) {
  const std::string head = "HTTP/1.1 200 OK\r\n\r\nid: ab-2\nevent: lease\ndata: {}\n\n";
  for (const auto& [more, complete] : {std::pair(": end\nid: ab-3\n\n", true), std::pair(": alive\n\n", false)}) {
    FakeServer server(path, [&, more = more](const FakeRequest&) { return FakeServer::Out{head + more, true}; });
    EventStream stream(Endpoint{path});
    ASSERT_TRUE(stream.open("/v1/events?follow=false", ""));
    while (stream.next(5s)) {
    }
    EXPECT_EQ(stream.complete(), complete);
  }
}

TEST(Encode, EscapesWhatAPathMayNotHold) { EXPECT_EQ(encode("a b/ü\r\n"), "a%20b%2F%C3%BC%0D%0A"); }

TEST(Keys, DifferAndArePrintable) {
  const std::string a = new_idempotency_key(), b = new_idempotency_key();
  EXPECT_EQ(a.size(), 32u);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace sublet::client
