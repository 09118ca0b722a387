// SPDX-License-Identifier: Apache-2.0
#include "compose/protocol.h"

#include "compose/engine_client.h"
#include "compose/log_frames.h"

#include <gtest/gtest.h>

namespace sublet::compose {
namespace {

using nlohmann::json;

template <typename T>
void expect_same(const T& value) {
  const json sent = to_json(value);
  const auto line = parse_line(to_line(sent).substr(0, to_line(sent).size() - 1));
  ASSERT_TRUE(line);
  const auto read = from_json<T>(line->root);
  ASSERT_TRUE(read) << sent.dump();
  EXPECT_EQ(to_json(*read), sent);
  // Each field is needed.
  for (const auto& [key, unused] : sent.items()) {
    if (key == "error") continue;
    json less = sent;
    less.erase(key);
    EXPECT_FALSE(from_json<T>(less)) << key;
  }
  EXPECT_FALSE(from_json<T>(json::array()));
}

TEST(Protocol, AllValuesSurviveTheWay) {
  expect_same(Sources{.dir = "/s",
                      .config = "a: /b",
                      .env_file = "/e",
                      .env_file_may_lack = true,
                      .adopted = {{"x", "/x"}, {"y", "/y"}}});
  expect_same(Observation{.project = "p",
                          .containers = {{.id = "1",
                                          .service = "web",
                                          .name = "p-web-1",
                                          .labels = {{"a", "b"}},
                                          .status = "running",
                                          .health = "healthy",
                                          .exit_code = 3,
                                          .pid = 77,
                                          .state = "{}",
                                          .ports = {"127.0.0.1:8080->80/tcp"}}}});
  expect_same(
      Engine{.reachable = true, .version = "28", .program = "docker compose 2", .why = "w", .gpu_runtime = true});
  expect_same(Start{.name = "n",
                    .project = "p",
                    .directory = "/d",
                    .resolved = "r",
                    .overlay = "o",
                    .timeout = std::chrono::seconds(90),
                    .recreate = true,
                    .credit = "/run/sublet/credit",
                    .interposed = {"web", "api"}});
  expect_same(Stop{.name = "n", .project = "p", .directory = "/d", .resolved = "r", .timeout = std::chrono::hours(1)});
  expect_same(LogQuery{.project = "p", .service = "s", .tail = 5, .follow = true});
  expect_same(Error{.code = Code::Stale, .detail = "d", .hint = "h"});
}

TEST(Protocol, DescriptionsSurviveTheWayWithAndWithoutAnError) {
  Description good;
  good.name = "a";
  good.origin = Origin::adopted;
  good.file = "/f";
  good.directory = "/d";
  good.project = "p";
  good.services = {{.name = "web",
                    .labels = {{"a", "b"}},
                    .healthcheck = true,
                    .replicas = 2,
                    .gpu = GpuRequest::cdi,
                    .gpu_capabilities = {"gpu", "video"},
                    .gpu_options = {{"k", "v"}}}};
  good.extension = "{}";
  good.resolved = "services: {}";
  Description bad;
  bad.name = "b";
  bad.origin = Origin::config;
  bad.error = denied("no", "hint");
  const json list = json::array({to_json(good), to_json(bad)});
  const auto read = from_json<std::vector<Description>>(list);
  ASSERT_TRUE(read);
  EXPECT_EQ(json::array({to_json((*read)[0]), to_json((*read)[1])}), list);
  EXPECT_EQ((*read)[0].services[0].gpu_capabilities, good.services[0].gpu_capabilities);
  EXPECT_EQ((*read)[0].services[0].gpu_options, good.services[0].gpu_options);
  EXPECT_EQ((*read)[1].error->code, Code::Denied);
  EXPECT_FALSE(from_json<std::vector<Description>>(json::array({1})));
}

TEST(Protocol, BytesThatAreNotUtf8AreReplacedAndHugeTimesAreCut) {
  EXPECT_EQ(to_line({{"a", "\xff"}}), "{\"a\":\"\xef\xbf\xbd\"}\n");
  json start = to_json(Start{});
  start["timeout_ms"] = INT64_MAX;
  EXPECT_GT(from_json<Start>(start)->timeout, std::chrono::hours(24));
  start["timeout_ms"] = -1;
  EXPECT_EQ(from_json<Start>(start)->timeout, Duration::zero());
  EXPECT_FALSE(parse_line("[]"));
  EXPECT_FALSE(parse_line("{"));
}

TEST(Protocol, LinesAreCollectedFromAnyPieces) {
  Lines lines;
  std::vector<std::string> got;
  const std::string text = "one\ntwo\n\nthree is longer\nrest";
  for (const char c : text) {
    ASSERT_TRUE(lines.feed({&c, 1}));
    while (auto line = lines.next()) got.push_back(*line);
  }
  EXPECT_EQ(got, (std::vector<std::string>{"one", "two", "", "three is longer"}));
  ASSERT_TRUE(lines.feed(" of it\nx\n"));
  EXPECT_EQ(lines.next(), "rest of it");
  EXPECT_EQ(lines.next(), "x");
  EXPECT_EQ(lines.next(), std::nullopt);
}

std::string frame(char stream, const std::string& text) {
  std::string header{stream, 0, 0, 0, 0, 0, static_cast<char>(text.size() >> 8), static_cast<char>(text.size())};
  return header + text;
}

TEST(LogFrames, LinesOfBothStreamsAreNamedByTheirService) {
  const std::string bytes =
      frame(1, "a\nb") + frame(2, "problem\n") + frame(1, "c\r\n") + frame(1, "") + frame(2, "rest");
  for (std::size_t piece : {std::size_t{1}, std::size_t{3}, bytes.size()}) {
    LogFrames frames("web", false);
    std::string out;
    for (std::size_t at = 0; at < bytes.size(); at += piece) out += frames.feed(bytes.substr(at, piece));
    EXPECT_EQ(out, "web | a\nweb | problem\nweb | bc\n") << piece;
    EXPECT_EQ(frames.end(), "web | rest\n");
  }
}

TEST(LogFrames, ATerminalHasNoFramesAndLongLinesAreCut) {
  LogFrames frames("web", true);
  const std::string out = frames.feed(std::string(40000, 'x') + "\ny");
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 3);
  EXPECT_EQ(out.size(), 40000 + 3 * std::string("web | \n").size());
  EXPECT_EQ(frames.end(), "web | y\n");
  EXPECT_TRUE(has_terminal({{"Config", {{"Tty", true}}}}));
  EXPECT_FALSE(has_terminal({{"Config", {{"Tty", false}}}}));
  EXPECT_FALSE(has_terminal({{"Config", nullptr}}));
}

TEST(EngineUrl, OnlyUnixSocketsAreEngines) {
  EXPECT_EQ(*engine_socket("unix:///run/docker.sock"), "/run/docker.sock");
  for (const std::string& bad : {std::string(), std::string("tcp://1.2.3.4"), std::string("unix://"),
                                 std::string("unix://relative"), "unix:///" + std::string(200, 'a')}) {
    EXPECT_FALSE(engine_socket(bad)) << bad;
  }
  EXPECT_EQ(encode_query("{\"a\":[\"b=c d\"]}"), "%7B%22a%22%3A%5B%22b%3Dc%20d%22%5D%7D");
}

}  // namespace
}  // namespace sublet::compose
