// SPDX-License-Identifier: Apache-2.0
#include "coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <string>

namespace sublet::sim {
namespace {

// A case that cannot happen here, and why.
struct Never {
  std::string_view name, why;
};
constexpr std::array<Never, 18> never{{
    {"amended", "sim_capabilities has supervised programs"},
    {"over_soft_limit", "ceilings are not in the simulation"},
    {"short_of_memory", "ceilings are not in the simulation"},
    {"memory_kept", "sim_capabilities has supervised programs"},
    {"idle_warned", "idle rules are not in the simulation"},
    {"draining", "the capability maintenance is not in the simulation"},
    {"service_changed", "the capability maintenance is not in the simulation"},
    {"tenants_changed", "the capability tenants is not in the simulation"},
    {"keeper_killed", "the capability follow is not in the simulation"},
    {"stray_use", "the capability follow is not in the simulation"},
    {"session_changed", "sim_capabilities has sessions"},
    {"over_limit", "ceilings are not in the simulation"},
    {"program_added", "sim_capabilities has supervised programs"},
    {"program_changed", "sim_capabilities has supervised programs"},
    {"program_removed", "sim_capabilities has supervised programs"},
    {"verdict_changed", "the enforcer is not in the simulation"},
    {"enforcement_changed", "the enforcer is not in the simulation"},
    {"stack_changed", "sim_capabilities has stacks"},
}};

constexpr std::size_t failures_at = core::interruptible.size();
constexpr std::size_t refusals_at = failures_at + park_failures.size();

std::string name_of(std::size_t at) {
  if (at < failures_at) return std::string(core::interruptible[at]);
  if (at < refusals_at) return "order:" + std::string(park_failures[at - failures_at]);
  return "refused:" + std::string(pause_refusals[at - refusals_at].name);
}

}  // namespace

void Coverage::happened(std::string_view transition) {
  const auto found = std::ranges::find(core::interruptible, transition);
  if (found != core::interruptible.end()) ++counts_[static_cast<std::size_t>(found - core::interruptible.begin())];
}

void Coverage::failed(std::string_view code) {
  const auto found = std::ranges::find(park_failures, code);
  // "internal" means a bug of ours, and ends the run by itself.
  assert(found != park_failures.end() || code == "internal");
  if (found != park_failures.end()) ++counts_[failures_at + static_cast<std::size_t>(found - park_failures.begin())];
}

void Coverage::refused(std::string_view words) {
  const auto found = std::ranges::find_if(
      pause_refusals, [words](const PauseRefusal& refusal) { return words.find(refusal.words) != words.npos; });
  if (found != pause_refusals.end()) ++counts_[refusals_at + static_cast<std::size_t>(found - pause_refusals.begin())];
}

void Coverage::set(std::span<const std::uint64_t, size> counts) { std::ranges::copy(counts, counts_.begin()); }

void Coverage::add(const Coverage& other) {
  for (std::size_t at = 0; at < size; ++at) counts_[at] += other.counts_[at];
}

void Coverage::print() const {
  for (std::size_t at = 0; at < size; ++at)
    fmt::print("{:<26}{:>9}{}", name_of(at), counts_[at], at % 3 == 2 || at + 1 == size ? "\n" : "    ");
}

bool Coverage::complete() const {
  std::string missing;
  for (std::size_t at = 0; at < size; ++at) {
    if (counts_[at] > 0) continue;
    const auto known = std::ranges::find(never, name_of(at), &Never::name);
    if (known == never.end()) missing += " " + name_of(at);
  }
  for (const Never& its : never) fmt::print("not to be met here: {}: {}\n", its.name, its.why);
  if (!missing.empty()) fmt::print("NEVER MET:{}\n", missing);
  return missing.empty();
}

}  // namespace sublet::sim
