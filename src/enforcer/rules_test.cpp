// SPDX-License-Identifier: Apache-2.0
#include "enforcer/rules.h"

#include "enforcer/test_support.h"

#include <gtest/gtest.h>

namespace sublet::enforcer {
namespace {

using namespace std::chrono_literals;

proc::ProcessRecord ollama() {
  proc::ProcessRecord record;
  record.process = {4711, 99};
  record.uid = 998;
  record.name = "ollama";
  record.cgroup = "/system.slice/ollama.service";
  record.unit = "ollama.service";
  record.system_unit = true;
  record.container = "0123456789ab";
  return record;
}

TEST(Rules, NameProcessesByFactsThatTheyCannotChoose) {
  const proc::ProcessRecord record = ollama();
  const std::string user = "llm";
  const struct {
    const char* subject;
    bool matches;
  } rows[] = {
      {"user:llm", true},
      {"user:998", true},
      {"user:ana", false},
      {"cgroup:/system.slice/ollama.service", true},
      {"cgroup:/system.slice/", true},
      {"cgroup:/", true},
      {"cgroup:/system.slice/ollama", false},
      {"cgroup:/user.slice", false},
      {"unit:ollama.service", true},
      {"unit:ollama", true},
      {"unit:ssh", false},
      {"container:0123456789ab", true},
      {"container:0123456789abcdef0123", true},
      {"container:0123", false},
  };
  for (const auto& row : rows) {
    const auto subject = parse_subject(row.subject);
    ASSERT_TRUE(subject) << row.subject;
    EXPECT_EQ(matches(*subject, {record, user}), row.matches) << row.subject;
  }
}

TEST(Rules, TakeNoUnitOfAUsersOwnManager) {
  proc::ProcessRecord record = ollama();
  record.system_unit = false;
  record.cgroup = "/user.slice/user-1000.slice/user@1000.service/ollama.service";
  const std::string user = "eve";
  EXPECT_FALSE(matches(*parse_subject("container:0123456789ab"), {record, user}));
  EXPECT_FALSE(matches(*parse_subject("unit:ollama.service"), {record, user}));
}

TEST(Rules, RefuseSubjectsThatProveNothing) {
  for (const char* text : {"", "user:", "path:/usr/bin/ollama", "name:ollama", "ollama", "cgroup:system.slice", ":x"})
    EXPECT_FALSE(parse_subject(text)) << text;
}

Rule policy(const char* subject, Policy policy) {
  return {.kind = Rule::Kind::policy, .id = 1, .subject = *parse_subject(subject), .policy = policy};
}

TEST(Rules, PreferTheLongestControlGroupForAPolicy) {
  const proc::ProcessRecord record = ollama();
  const std::string user = "llm";
  std::vector<Rule> rules{policy("user:llm", Policy::warn)};
  EXPECT_EQ(policy_of(rules, {record, user})->policy, Policy::warn);
  rules.push_back(policy("cgroup:/system.slice/ollama.service", Policy::observe));
  rules.push_back(policy("cgroup:/system.slice", Policy::enforce));
  EXPECT_EQ(policy_of(rules, {record, user})->policy, Policy::observe);
  const std::string other = "ana";
  proc::ProcessRecord elsewhere = record;
  elsewhere.cgroup = "/user.slice";
  EXPECT_EQ(policy_of(rules, {elsewhere, other}), nullptr);
}

TEST(Rules, ObserveProcessesThatOnlyDraw) {
  const proc::ProcessRecord record = ollama();
  const std::string user = "llm";
  const Suspect computes{record, user}, draws{record, user, true};
  EXPECT_EQ(policy_for({}, computes, Policy::enforce), Policy::enforce);
  EXPECT_EQ(policy_for({}, draws, Policy::enforce), Policy::observe);
  std::vector<Rule> rules{policy("cgroup:/", Policy::enforce)};
  EXPECT_EQ(policy_for(rules, draws, Policy::enforce), Policy::observe) << "the rule does not name them";
  rules[0].graphics = true;
  EXPECT_EQ(policy_for(rules, draws, Policy::observe), Policy::enforce);
  rules.push_back(policy("cgroup:/system.slice", Policy::enforce));
  EXPECT_EQ(policy_for(rules, draws, Policy::enforce), Policy::observe) << "a longer path outweighs it";
}

TEST(Rules, EndApprovalsInTime) {
  const proc::ProcessRecord record = ollama();
  const std::string user = "llm";
  Rule rule{.kind = Rule::Kind::approval, .id = 7, .subject = *parse_subject("user:llm")};
  EXPECT_NE(approval_of({rule}, {record, user}, noon), nullptr);
  rule.until = noon;
  EXPECT_NE(approval_of({rule}, {record, user}, noon - 1s), nullptr);
  EXPECT_EQ(approval_of({rule}, {record, user}, noon), nullptr);
}

TEST(Rules, AreStoredWhole) {
  Rule rule{.kind = Rule::Kind::approval, .id = 7, .subject = *parse_subject("unit:ollama")};
  rule.until = noon;
  rule.reason = "a \"reason\"\nwith \xff a bad byte";
  rule.by = "ana";
  rule.at = noon - 1s;
  const auto read = rule_from_row(to_row(rule));
  ASSERT_TRUE(read) << read.error().detail;
  EXPECT_EQ(read->subject, rule.subject);
  EXPECT_EQ(read->until, rule.until);
  EXPECT_EQ(read->by, "ana");
  EXPECT_TRUE(read->reason.starts_with("a \"reason\"\nwith "));
  for (const char* data : {"", "{", "{}", "[]", R"({"subject":"x"})", R"({"subject":"user:a","policy":"never"})"})
    EXPECT_FALSE(rule_from_row({"policy", "7", data})) << data;
  rule.kind = Rule::Kind::policy;
  rule.graphics = true;
  EXPECT_TRUE(rule_from_row(to_row(rule))->graphics);
  EXPECT_FALSE(rule_from_row({"policy", "seven", R"({"subject":"user:a","policy":"warn"})"}));
}

}  // namespace
}  // namespace sublet::enforcer
