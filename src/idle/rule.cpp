// SPDX-License-Identifier: Apache-2.0
#include "idle/rule.h"

#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>

namespace sublet::idle {
namespace {

using nlohmann::json;

// The parts of a rule, with their names in rows.
constexpr std::array<std::pair<const char*, std::optional<Duration> Rule::*>, 3> parts{
    {{"warn_ms", &Rule::warn}, {"pause_ms", &Rule::pause}, {"end_ms", &Rule::end}}};

// The rule of the configuration for this name; null: there is none.
const Rule* find(const Rules& rules, NamedRule::Of of, std::string_view name) {
  for (const NamedRule& named : rules.named)
    if (named.of == of && named.name == name) return &named.rule;
  return nullptr;
}

// Programs of one name are told apart by a hash of their file (serve.py~1a2b3c4d). A rule may name one of them, or all
// by the part before the hash.
const Rule* find_consumer(const Rules& rules, std::string_view consumer) {
  const Rule* exact = find(rules, NamedRule::Of::consumer, consumer);
  return exact != nullptr ? exact : find(rules, NamedRule::Of::consumer, consumer.substr(0, consumer.rfind('~')));
}

}  // namespace

std::string_view to_string(Source source) {
  constexpr std::array<std::string_view, 6> words{"lease", "consumer", "tenant", "tier", "sessions", "default"};
  return words.at(static_cast<std::size_t>(source));
}

bool InForce::is_nothing() const {
  for (const Part& part : {warn, pause, end})
    if (part.after > Duration{} || part.source != Source::standard) return false;
  return true;
}

InForce resolve(const Rules& rules, const core::Lease& lease, const OwnRule& own) {
  const std::pair<Source, const Rule*> sources[] = {
      {Source::lease, &own.rule},
      {Source::consumer, find_consumer(rules, lease.consumer)},
      {Source::tenant, find(rules, NamedRule::Of::tenant, lease.tenant)},
      {Source::tier, find(rules, NamedRule::Of::tier, core::to_string(lease.tier))},
      {Source::sessions, own.session ? &rules.sessions : nullptr},
      {Source::standard, &rules.standard},
  };
  const auto nearest = [&](std::optional<Duration> Rule::*part) -> Part {
    for (const auto& [source, rule] : sources)
      if (rule != nullptr && rule->*part) return {*(rule->*part), source};
    return {};
  };
  return {nearest(&Rule::warn), nearest(&Rule::pause), nearest(&Rule::end)};
}

std::string rule_text(Source source, const core::Lease& lease) {
  switch (source) {
    case Source::lease: return "its own rule";
    case Source::consumer: return fmt::format("rule of the consumer {}", lease.consumer);
    case Source::tenant: return fmt::format("rule of the tenant {}", lease.tenant);
    case Source::tier: return fmt::format("rule of the tier {}", core::to_string(lease.tier));
    case Source::sessions: return "rule of sessions";
    case Source::standard: break;
  }
  return "default rule";
}

Result<std::optional<Duration>> parse_part(std::string_view text) {
  if (text.empty()) return std::optional<Duration>();
  if (text == "off") return std::optional(Duration{});
  const auto parsed = parse_duration(text);
  if (!parsed) return parsed.error();
  if (*parsed < std::chrono::seconds(1) || *parsed > std::chrono::days(365))
    return bad_request(fmt::format("'{}' is not between 1s and 365d", printable(text)), "write 10m, or off");
  return std::optional(*parsed);
}

store::CapabilityRow to_row(LeaseId lease, const OwnRule& own) {
  store::CapabilityRow row{std::string(row_kind), fmt::format("{}", lease.number), ""};
  if (own == OwnRule{}) return row;
  json data = json::object();
  for (const auto& [name, part] : parts)
    if (own.rule.*part) data[name] = *(own.rule.*part) / std::chrono::milliseconds(1);
  if (own.session) data["session"] = true;
  row.data = data.dump();
  return row;
}

Result<OwnRule> own_rule_from_row(const store::CapabilityRow& row) {
  const auto unreadable = [&row] {
    return bad_request(
        fmt::format("the idle rule of lease-{} cannot be read: {}", printable(row.key), printable(row.data)));
  };
  const json data = json::parse(row.data, nullptr, false);
  if (!data.is_object()) return unreadable();
  OwnRule own;
  for (const auto& [name, part] : parts) {
    const auto found = data.find(name);
    if (found == data.end()) continue;
    if (!found->is_number_integer() || *found < 0) return unreadable();
    own.rule.*part = std::chrono::milliseconds(found->get<std::int64_t>());
  }
  own.session = data.value("session", json(false)) == json(true);
  return own;
}

}  // namespace sublet::idle
