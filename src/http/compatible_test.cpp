// SPDX-License-Identifier: Apache-2.0
#include "http/compatible.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace sublet::http::compatible {
namespace {

using namespace std::chrono_literals;

constexpr Time now{1'700'000'000'500'000'000};

TEST(Compatible, ReadsABodyAsTheServiceDoes) {
  struct Case {
    const char* body;
    int status;  // 0: it is accepted
    const char* text;
  };
  const Case cases[] = {
      {R"({"target":"a"})", 0, ""},
      {R"({"target":"a","lease_ttl_s":null,"wait_s":"","priority":null,"unknown":[1]})", 0, ""},
      {R"({"target":"a","lease_ttl_s":"1.5","priority":"7","wait_ready":"no"})", 0, ""},
      {R"({"target":"a","priority":7.0})", 0, ""},
      {"", 422, R"("loc":["body"],"msg":"Field required")"},
      {"{", 422, "json_invalid"},
      {"[1]", 422, "model_attributes_type"},
      {"{}", 422, R"("loc":["body","target"],"msg":"Field required")"},
      {R"({"target":5})", 422, "string_type"},
      {R"({"target":[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]})", 422, "json_invalid"},
      {R"({"target":"a","owner":{"x":[1]}})", 422, R"("input":{"x":[1]})"},
      {"null", 422, "model_attributes_type"},
      {R"({"target":"a","wait_ready":null})", 422, "bool_type"},
      {R"({"target":"a","priority":1.5})", 422, "int_from_float"},
      {R"({"target":"a","priority":"x"})", 422, "int_parsing"},
      {R"({"target":"a","priority":[]})", 422, "int_type"},
      {R"({"target":"a","wait_ready":"perhaps"})", 422, "bool_parsing"},
      {R"({"target":"a","lease_ttl_s":[]})", 422, "float_type"},
  };
  for (const Case& one : cases) {
    const auto read = parse_acquire(one.body, {});
    const auto* refused = std::get_if<Response>(&read);
    ASSERT_EQ(refused == nullptr ? 0 : refused->status, one.status) << one.body;
    if (refused != nullptr) {
      EXPECT_NE(refused->body.dump().find(one.text), std::string::npos) << refused->body.dump();
    }
  }
  const auto call = std::get<AcquireCall>(
      parse_acquire(R"({"target":"a","owner":"o","lease_token":"t","lease_ttl_s":"1.5","priority":"7","wait_ready":0})",
                    {.ttl = 1s, .wait = 2s}));
  EXPECT_EQ(call.ask.target + call.ask.owner + call.ask.token, "aot");
  EXPECT_EQ(call.ask.ttl, 1500ms);
  EXPECT_EQ(call.wait, 2s);
  EXPECT_EQ(call.ask.priority, 7);
  EXPECT_FALSE(call.wait_ready);
  const auto longest = std::get<AcquireCall>(parse_acquire(R"({"target":"a","lease_ttl_s":1e300})", {}));
  EXPECT_GT(longest.ask.ttl, 24h * 365) << "a huge time does not overflow";
  for (const auto& [ttl, wrong] :
       {std::pair<const char*, const char*>{R"("abc")", "could not convert string to float: 'abc'"},
        {"0", "lease_ttl_s must be > 0"},
        {R"("-1")", "lease_ttl_s must be > 0"},
        {R"("nan")", "cannot convert float NaN to integer"},
        {R"(" +5 ")", ""}}) {
    const auto timed =
        std::get<AcquireCall>(parse_acquire(fmt::format(R"({{"target":"a","wait_s":"x","lease_ttl_s":{}}})", ttl), {}));
    EXPECT_EQ(timed.wrong_ttl, wrong) << ttl;
    EXPECT_EQ(timed.wrong_wait, "could not convert string to float: 'x'");
  }
  const auto release = std::get<ReleaseCall>(parse_release(R"({"lease_token":"t","force":true})"));
  EXPECT_TRUE(release.token == "t" && release.force);
}

struct Scene {
  Scene() {
    a.name = "a";
    a.file = "/srv/a/compose.yml";
    seen.project = "a";
    seen.containers.resize(2);
    seen.containers[0].labels["m"] = "true";
    seen.containers[0].health = "healthy";
    seen.containers[0].state = R"({"Status":"running","Pid":7})";
    view.slot = &slot;
    view.stacks = {&a};
    view.target = &a;
    view.containers = &seen;
    view.logs_tail = "ready\n";
    view.label = "m";
    view.label_value = "true";
    view.now = now;
  }
  compose::Description a;
  compose::Observation seen;
  stacks::Slot slot;
  View view;
};

TEST(Compatible, StatusHasTheFieldsOfEachVersion) {
  Scene scene;
  EXPECT_EQ(status_body(scene.view)["state"], json({{"queue", json::array()}}));
  EXPECT_EQ(status_body(scene.view)["services"], json({{"a", "/srv/a/compose.yml"}}));
  scene.slot.acquire({"a", "ana", "", 60s, {}}, "secret", 10s, now);
  scene.slot.started("secret", now);
  json state = status_body(scene.view)["state"];
  EXPECT_TRUE(state["starting"]);
  scene.slot.ready("secret", now);
  scene.slot.acquire({"b", "bob", "", 60s, 3}, "queued", 10s, now);
  state = status_body(scene.view)["state"];
  EXPECT_EQ(state, json::parse(R"({"mode":"service","target":"a","at":1700000001,
      "lease":{"owner":"ana","expires_at":1700000061},
      "queue":[{"token":null,"owner":"bob","priority":3,"target":"b","claim_expires_at":null}]})"));
  json service = status_body(scene.view)["service"];
  EXPECT_EQ(service, json::parse(R"({"Status":"running","Pid":7,"logs_tail":"ready\n","container_count":2,
      "endpoint":{"compose_file":"/srv/a/compose.yml"},"healthcheck_master_label":"m=true"})"));

  scene.view.newest = scene.view.shows_tokens = true;
  service = status_body(scene.view)["service"];
  EXPECT_EQ(service, json::parse(R"({"Status":"running","Pid":7,"logs_tail":"ready\n","container_count":2,
      "endpoint":{"compose_file":"/srv/a/compose.yml","name":"a"},"healthy_container_count":1,
      "unhealthy_container_count":0,"no_healthcheck_container_count":1})"));
  EXPECT_EQ(status_body(scene.view)["state"]["queue"][0]["token"], "queued");
  EXPECT_EQ(status_body(scene.view)["services"]["a"], json({{"compose_file", "/srv/a/compose.yml"}, {"name", "a"}}));

  const json granted = granted_body(scene.view, *scene.slot.holder());
  EXPECT_EQ(granted["lease_token"], "secret");
  EXPECT_EQ(granted["lease_expires_at"], 1700000061);
  EXPECT_FALSE(granted.contains("queued"));
  const json queued = queued_body(scene.view, "queued");
  EXPECT_TRUE(queued["queued"] && queued["queue_index"] == 0 && queued["lease_token"] == "queued");
}

TEST(Compatible, ServiceIsEmptyUnlessExactlyOneMasterIsFound) {
  Scene scene;
  scene.seen.containers[1].labels["m"] = "true";
  EXPECT_EQ(status_body(scene.view)["service"], json::object());
  scene.seen.containers.clear();
  EXPECT_EQ(status_body(scene.view)["service"], json::object());
  scene.view.target = nullptr;
  EXPECT_EQ(status_body(scene.view)["service"], json::object());
}

TEST(Compatible, HostsOfOtherFamiliesAndOfPort80) {
  Headers headers;
  headers.host = "[::1]:8080";
  EXPECT_FALSE(refuse_headers(headers, "::1", 8080));
  headers.host = "::1:8080";
  EXPECT_TRUE(refuse_headers(headers, "::1", 8080));
  headers.host = "203.0.113.1";
  EXPECT_FALSE(refuse_headers(headers, "203.0.113.1", 80));
}

TEST(Compatible, ATextHasALimit) {
  const std::string long_owner = R"({"target":"a","owner":")" + std::string(257, 'x') + "\"}";
  EXPECT_EQ(std::get<Response>(parse_acquire(long_owner, {})).status, 422);
}

TEST(Compatible, RefusesRequestsOfWebPages) {
  struct Case {
    Headers headers;
    int status;
  };
  const Case cases[] = {
      {{.host = "127.0.0.1:8080"}, 0},
      {{.host = "localhost:8080", .content_type = "Application/JSON; charset=utf-8", .is_post = true}, 0},
      {{.host = "evil.example:8080"}, 403},
      {{.host = "127.0.0.1"}, 403},
      {{.host = ""}, 403},
      {{.host = "127.0.0.1:8080", .origin = "null", .has_origin = true}, 403},
      {{.host = "127.0.0.1:8080", .content_type = "text/plain", .is_post = true}, 415},
      {{.host = "127.0.0.1:8080", .content_type = "", .is_post = true}, 415},
  };
  for (const Case& one : cases) {
    const auto refused = refuse_headers(one.headers, "127.0.0.1", 8080);
    EXPECT_EQ(refused ? refused->status : 0, one.status) << one.headers.host << one.headers.content_type;
  }
}

}  // namespace
}  // namespace sublet::http::compatible
