// SPDX-License-Identifier: Apache-2.0
#include "stacks/stack.h"

#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace sublet::stacks {
namespace {

using nlohmann::json;

constexpr std::size_t longest_name = 58;  // the tag of its lease, "stack-NAME", has at most 64

constexpr std::array phases{std::pair{Phase::down, "down"},         std::pair{Phase::queued, "queued"},
                            std::pair{Phase::creating, "creating"}, std::pair{Phase::starting, "starting"},
                            std::pair{Phase::ready, "ready"},       std::pair{Phase::released, "released"},
                            std::pair{Phase::stopping, "stopping"}, std::pair{Phase::failed, "failed"}};

json write(const Settings& set) {
  json out = json::object();
  if (set.vram) out["vram"] = set.vram->count;
  if (set.devices) out["devices"] = *set.devices;
  if (set.tier) out["tier"] = core::to_string(*set.tier);
  if (set.exclusive) out["exclusive"] = *set.exclusive;
  if (set.pausable) out["pausable"] = *set.pausable;
  return out;
}

Settings read_settings(const json& from) {
  Settings set;
  if (from.contains("vram")) set.vram = Bytes{from.at("vram").get<std::int64_t>()};
  if (from.contains("devices")) set.devices = from.at("devices").get<int>();
  if (from.contains("tier")) set.tier = core::parse_tier(from.at("tier").get<std::string>());
  if (from.contains("exclusive")) set.exclusive = from.at("exclusive").get<bool>();
  if (from.contains("pausable")) set.pausable = from.at("pausable").get<bool>();
  return set;
}

json write(const Use& use) {
  json out{{"uid", use.uid},
           {"user", use.user},
           {"owner", use.owner},
           {"token_hash", use.token_hash},
           {"lease", use.lease.number},
           {"ttl", use.ttl.count()},
           {"tier", core::to_string(use.tier)}};
  if (use.expires_at) out["expires_at"] = use.expires_at->ns;
  if (use.ready_by) out["ready_by"] = use.ready_by->ns;
  return out;
}

Use read_use(const json& from) {
  Use use;
  from.at("uid").get_to(use.uid);
  from.at("user").get_to(use.user);
  from.at("owner").get_to(use.owner);
  from.at("token_hash").get_to(use.token_hash);
  from.at("lease").get_to(use.lease.number);
  use.ttl = Duration(from.at("ttl").get<std::int64_t>());
  use.tier = core::parse_tier(from.at("tier").get<std::string>()).value_or(core::Tier::standard);
  if (from.contains("expires_at")) use.expires_at = Time{from.at("expires_at").get<std::int64_t>()};
  if (from.contains("ready_by")) use.ready_by = Time{from.at("ready_by").get<std::int64_t>()};
  return use;
}

}  // namespace

std::string_view to_string(Phase phase) {
  for (const auto& [each, word] : phases)
    if (each == phase) return word;
  return {};
}

std::optional<Phase> parse_phase(std::string_view text) {
  for (const auto& [each, word] : phases)
    if (word == text) return each;
  return std::nullopt;
}

bool Stack::blank() const {
  return adopted.empty() && set == Settings{} && peak == Bytes{} && phase == Phase::down && why.empty();
}

store::CapabilityRow to_row(const Stack& stack) {
  const json data{{"adopted", stack.adopted},        {"set", write(stack.set)},      {"peak", stack.peak.count},
                  {"phase", to_string(stack.phase)}, {"since", stack.since.ns},      {"why", stack.why},
                  {"use", write(stack.use)},         {"will_fail", stack.will_fail}, {"project", stack.project},
                  {"directory", stack.directory},    {"by_label", stack.by_label},   {"recreate", stack.recreate}};
  return {"stack", stack.name, data.dump(-1, ' ', false, json::error_handler_t::replace)};
}

Result<Stack> from_row(const store::CapabilityRow& row) {
  try {
    const json data = json::parse(row.data);
    Stack stack;
    stack.name = row.key;
    data.at("adopted").get_to(stack.adopted);
    stack.set = read_settings(data.at("set"));
    data.at("peak").get_to(stack.peak.count);
    stack.phase = parse_phase(data.at("phase").get<std::string>()).value_or(Phase::down);
    data.at("since").get_to(stack.since.ns);
    data.at("why").get_to(stack.why);
    stack.use = read_use(data.at("use"));
    data.at("will_fail").get_to(stack.will_fail);
    data.at("project").get_to(stack.project);
    data.at("directory").get_to(stack.directory);
    data.at("by_label").get_to(stack.by_label);
    stack.recreate = data.value("recreate", false);
    return stack;
  } catch (const json::exception& wrong) {
    return unavailable("the stored stack '" + row.key + "' cannot be read: " + wrong.what());
  }
}

Status check_name(std::string_view name) {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const auto good = [&](char c) { return alphanumeric(c) || c == '.' || c == '_' || c == '-'; };
  if (!name.empty() && name.size() <= longest_name && alphanumeric(name[0]) && std::ranges::all_of(name, good))
    return {};
  return bad_request(
      fmt::format("'{}' cannot be the name of a stack", printable(name)),
      fmt::format("use at most {} letters, digits, '.', '_' and '-'; begin with a letter or a digit", longest_name));
}

}  // namespace sublet::stacks
