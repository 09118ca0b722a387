// SPDX-License-Identifier: Apache-2.0
#include "idle/rule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace sublet::idle {
namespace {

using namespace std::chrono_literals;

std::string show(const InForce& rule) {
  std::string text;
  for (const Part& part : {rule.warn, rule.pause, rule.end})
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", part.after / 1s, to_string(part.source));
  return text;
}

core::Lease lease_of(core::Tier tier, const std::string& tenant, const std::string& consumer) {
  core::Lease lease;
  lease.tier = tier;
  lease.tenant = tenant;
  lease.consumer = consumer;
  return lease;
}

TEST(IdleRule, TheNearestSourceWinsForEachPart) {
  const Rules nothing;
  Rules rules;
  rules.standard = {.warn = 1s, .pause = 2s, .end = 3s};
  rules.sessions = {.pause = 10s, .end = 20s};
  rules.named = {{NamedRule::Of::tier, "batch", {.warn = 4s}},
                 {NamedRule::Of::tenant, "chem", {.warn = 5s, .pause = Duration{}}},
                 {NamedRule::Of::consumer, "jupyter", {.end = 6s}},
                 {NamedRule::Of::consumer, "jupyter~00000000", {.end = 9s}}};
  const auto standard = core::Tier::standard, batch = core::Tier::batch;
  struct Row {
    const char* what;
    const Rules& rules;
    core::Lease lease;
    OwnRule own;
    std::string in_force;
  };
  const Row rows[] = {
      {"nothing is set", nothing, lease_of(standard, "ana", "train"), {}, "0 default, 0 default, 0 default"},
      {"the default", rules, lease_of(standard, "ana", "train"), {}, "1 default, 2 default, 3 default"},
      {"a tier", rules, lease_of(batch, "ana", "train"), {}, "4 tier, 2 default, 3 default"},
      {"a tenant is nearer than a tier; off is a value",
       rules,
       lease_of(batch, "chem", "train"),
       {},
       "5 tenant, 0 tenant, 3 default"},
      {"a consumer", rules, lease_of(batch, "chem", "jupyter"), {}, "5 tenant, 0 tenant, 6 consumer"},
      {"a consumer with the hash of its file",
       rules,
       lease_of(batch, "chem", "jupyter~1a2b3c4d"),
       {},
       "5 tenant, 0 tenant, 6 consumer"},
      {"one file of that name",
       rules,
       lease_of(batch, "chem", "jupyter~00000000"),
       {},
       "5 tenant, 0 tenant, 9 consumer"},
      {"another consumer", rules, lease_of(batch, "chem", "jupyterlab~1a2b3c4d"), {}, "5 tenant, 0 tenant, 3 default"},
      {"the lease itself",
       rules,
       lease_of(batch, "chem", "jupyter"),
       {.rule = {.pause = 7s, .end = Duration{}}},
       "5 tenant, 7 lease, 0 lease"},
      {"a session",
       rules,
       lease_of(standard, "ana", "train"),
       {.rule = {}, .session = true},
       "1 default, 10 sessions, 20 sessions"},
      {"a tier is nearer than sessions",
       rules,
       lease_of(batch, "chem", "x"),
       {.rule = {}, .session = true},
       "5 tenant, 0 tenant, 20 sessions"},
  };
  for (const Row& row : rows) EXPECT_EQ(show(resolve(row.rules, row.lease, row.own)), row.in_force) << row.what;
}

TEST(IdleRule, OffByDefaultIsNoRule) {
  const core::Lease lease = lease_of(core::Tier::standard, "ana", "train");
  EXPECT_TRUE(resolve({}, lease, {}).is_nothing());
  EXPECT_FALSE(resolve({}, lease, {.rule = {.end = Duration{}}}).is_nothing()) << "somebody chose it";
  EXPECT_FALSE(resolve({.standard = {.warn = 1s}, .sessions = {}, .named = {}}, lease, {}).is_nothing());
}

TEST(IdleRule, PartsAreDurationsOrOff) {
  EXPECT_EQ(*parse_part(""), std::nullopt);
  EXPECT_EQ(*parse_part("off"), Duration{});
  EXPECT_EQ(*parse_part("10m"), 10min);
  for (const char* wrong : {"soon", "0s", "10ms", "400d", "-1m"}) EXPECT_FALSE(parse_part(wrong)) << wrong;
}

TEST(IdleRule, SurvivesTheStore) {
  for (const OwnRule& own :
       {OwnRule{.rule = {.warn = 5min}}, OwnRule{.rule = {.pause = Duration{}, .end = 1h}, .session = true},
        OwnRule{.rule = {}, .session = true}}) {
    const auto row = to_row(LeaseId{7}, own);
    EXPECT_EQ(row.kind, "idle");
    EXPECT_EQ(row.key, "7");
    EXPECT_EQ(*own_rule_from_row(row), own);
  }
  EXPECT_EQ(to_row(LeaseId{7}, {}).data, "") << "nothing to store";
  for (const char* wrong : {"", "[]", "{\"warn_ms\":-1}", "{\"end_ms\":\"1\"}"})
    EXPECT_FALSE(own_rule_from_row({"idle", "7", wrong})) << wrong;
}

}  // namespace
}  // namespace sublet::idle
