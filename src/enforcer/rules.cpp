// SPDX-License-Identifier: Apache-2.0
#include "enforcer/rules.h"

#include "base/number.h"
#include "base/path.h"
#include "base/text.h"
#include "base/words.h"
#include "store/fields.h"

#include <fmt/format.h>

#include <utility>

namespace sublet::enforcer {
namespace {

constexpr Words<Policy, 4> policies{
    {{Policy::observe, "observe"}, {Policy::warn, "warn"}, {Policy::adopt, "adopt"}, {Policy::enforce, "enforce"}}};
constexpr Words<Subject::Kind, 4> kinds{{{Subject::Kind::user, "user"},
                                         {Subject::Kind::cgroup, "cgroup"},
                                         {Subject::Kind::unit, "unit"},
                                         {Subject::Kind::container, "container"}}};
constexpr std::size_t longest_value = 1024;

bool is_below(std::string_view path, std::string_view above) {
  return above == "/" || is_inside(path, above);
}

const char* row_kind(Rule::Kind kind) { return kind == Rule::Kind::approval ? "approval" : "policy"; }

}  // namespace

std::string_view to_string(Policy policy) { return word_of(policies, policy); }
std::optional<Policy> parse_policy(std::string_view text) { return value_of(policies, text); }

std::string to_string(const Subject& subject) {
  return fmt::format("{}:{}", word_of(kinds, subject.kind), subject.value);
}

Result<Subject> parse_subject(std::string_view text) {
  const auto colon = text.find(':');
  const auto value = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  for (const auto& [kind, word] : kinds) {
    if (text.substr(0, colon) != word || value.empty() || value.size() > longest_value) continue;
    Subject subject{kind, std::string(value)};
    if (kind == Subject::Kind::cgroup) {
      if (value[0] != '/')
        return bad_request(fmt::format("the control group '{}' is no path", printable(value)),
                           "give its path in the hierarchy, as in /proc/PID/cgroup: cgroup:/system.slice/x.service");
      while (subject.value.size() > 1 && subject.value.back() == '/') subject.value.pop_back();
    }
    if (kind == Subject::Kind::unit && value.find('.') == std::string_view::npos) subject.value += ".service";
    return subject;
  }
  return bad_request(fmt::format("'{}' names no processes", printable(text)),
                     "write user:NAME, cgroup:PATH, unit:NAME or container:ID");
}

bool matches(const Subject& subject, const Suspect& suspect) {
  const proc::ProcessRecord& record = suspect.record;
  switch (subject.kind) {
    case Subject::Kind::user: return subject.value == suspect.user || subject.value == fmt::format("{}", record.uid);
    case Subject::Kind::cgroup: return !record.cgroup.empty() && is_below(record.cgroup, subject.value);
    case Subject::Kind::unit: return record.system_unit && record.unit == subject.value;
    case Subject::Kind::container:
      // The id is known by its first 12 digits.
      return !record.container.empty() && proc::is_system_path(record.cgroup) &&  // a user can name own groups
             (record.container == subject.value || (subject.value.size() > 12 && record.container.size() == 12 &&
                                                    subject.value.starts_with(record.container)));
  }
  return false;
}

void fields(auto& visit, store::Like<Rule> auto& rule) {
  visit.word("subject", rule.subject, parse_subject);
  visit.word("policy", rule.policy, parse_policy);
  visit("graphics", rule.graphics);
  visit("until", rule.until);
  visit("reason", rule.reason);
  visit("by", rule.by);
  visit("at", rule.at);
}

store::CapabilityRow to_row(const Rule& rule) {
  return store::row_of(row_kind(rule.kind), fmt::format("{}", rule.id), rule);
}

Result<Rule> rule_from_row(const store::CapabilityRow& row) {
  const auto id = parse_number<std::uint64_t>(row.key);
  if (!id) return bad_request(fmt::format("the {} {} has no number", row.kind, printable(row.key)));
  Rule rule{.kind = row.kind == "policy" ? Rule::Kind::policy : Rule::Kind::approval, .id = *id};
  if (const Status read = store::read_row(row, rule); !read) return read.error();
  return rule;
}

const Rule* approval_of(const std::vector<Rule>& rules, const Suspect& suspect, Time now) {
  for (const Rule& rule : rules) {
    const bool holds = rule.kind == Rule::Kind::approval && (!rule.until || now < *rule.until);
    if (holds && matches(rule.subject, suspect)) return &rule;
  }
  return nullptr;
}

const Rule* policy_of(const std::vector<Rule>& rules, const Suspect& suspect) {
  const Rule* best = nullptr;
  const auto rank = [](const Rule& rule) {
    return rule.subject.kind == Subject::Kind::cgroup ? std::pair(1, rule.subject.value.size())
                                                      : std::pair<int, std::size_t>(0, 0);
  };
  for (const Rule& rule : rules) {
    if (rule.kind != Rule::Kind::policy || !matches(rule.subject, suspect)) continue;
    if (best == nullptr || rank(rule) > rank(*best)) best = &rule;
  }
  return best;
}

Policy policy_for(const std::vector<Rule>& rules, const Suspect& suspect, Policy standard) {
  const Rule* rule = policy_of(rules, suspect);
  if (suspect.draws && (rule == nullptr || !rule->graphics)) return Policy::observe;
  return rule != nullptr ? rule->policy : standard;
}

}  // namespace sublet::enforcer
