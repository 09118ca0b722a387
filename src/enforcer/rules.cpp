// SPDX-License-Identifier: Apache-2.0
#include "enforcer/rules.h"

#include "base/number.h"
#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <utility>

namespace sublet::enforcer {
namespace {

using nlohmann::json;

constexpr std::array policies{std::pair{Policy::observe, "observe"}, std::pair{Policy::warn, "warn"},
                              std::pair{Policy::adopt, "adopt"}, std::pair{Policy::enforce, "enforce"}};
constexpr std::array kinds{std::pair{Subject::Kind::user, "user"}, std::pair{Subject::Kind::cgroup, "cgroup"},
                           std::pair{Subject::Kind::unit, "unit"}, std::pair{Subject::Kind::container, "container"}};
constexpr std::size_t longest_value = 1024;

bool is_below(std::string_view path, std::string_view above) {
  if (above == "/") return true;
  return path.starts_with(above) && (path.size() == above.size() || path[above.size()] == '/');
}

const char* row_kind(Rule::Kind kind) { return kind == Rule::Kind::approval ? "approval" : "policy"; }

}  // namespace

std::string_view to_string(Policy policy) {
  for (const auto& [each, word] : policies)
    if (each == policy) return word;
  return "observe";
}

std::optional<Policy> parse_policy(std::string_view text) {
  for (const auto& [each, word] : policies)
    if (word == text) return each;
  return std::nullopt;
}

std::string to_string(const Subject& subject) {
  for (const auto& [kind, word] : kinds)
    if (kind == subject.kind) return fmt::format("{}:{}", word, subject.value);
  return {};
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

store::CapabilityRow to_row(const Rule& rule) {
  json data{{"subject", to_string(rule.subject)}, {"by", rule.by}, {"at_ns", rule.at.ns}};
  if (rule.kind == Rule::Kind::policy) data["policy"] = to_string(rule.policy);
  if (rule.graphics) data["graphics"] = true;
  if (rule.until) data["until_ns"] = rule.until->ns;
  if (!rule.reason.empty()) data["reason"] = rule.reason;
  return {row_kind(rule.kind), fmt::format("{}", rule.id), data.dump(-1, ' ', false, json::error_handler_t::replace)};
}

Result<Rule> rule_from_row(const store::CapabilityRow& row) {
  const auto unreadable = [&row] {
    return bad_request(fmt::format("the {} {} cannot be read: {}", row.kind, printable(row.key), printable(row.data)));
  };
  const auto id = parse_number<std::uint64_t>(row.key);
  if (!id) return unreadable();
  try {
    const json data = json::parse(row.data);
    auto subject = parse_subject(data.at("subject").get<std::string>());
    const auto policy = parse_policy(data.value("policy", "observe"));
    if (!subject || !policy) return unreadable();
    Rule rule{.kind = row.kind == "policy" ? Rule::Kind::policy : Rule::Kind::approval,
              .id = *id,
              .subject = std::move(*subject),
              .policy = *policy,
              .graphics = data.value("graphics", false),
              .until = std::nullopt,
              .reason = data.value("reason", ""),
              .by = data.value("by", ""),
              .at = Time{data.value("at_ns", std::int64_t{0})}};
    if (data.contains("until_ns")) rule.until = Time{data.at("until_ns").get<std::int64_t>()};
    return rule;
  } catch (const json::exception&) {  // a field is missing, or has another type
    return unreadable();
  }
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
