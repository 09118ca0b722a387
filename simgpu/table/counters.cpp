// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "table.h"

namespace simgpu {

using namespace layout;

namespace {

constexpr std::string_view violation_prefix = "violation: ";

std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ULL;
  return hash ? hash : 1;
}

std::uint64_t now_ns() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

std::vector<CallCount> counts(const layout::Cards& table, bool violations) {
  std::vector<CallCount> all;
  for (const auto& counter : table.counter) {
    const std::string_view name(counter.name.data(), ::strnlen(counter.name.data(), counter.name.size()));
    if (counter.key == 0 || counter.count == 0 || name.empty()) continue;
    if (name.starts_with(violation_prefix) != violations) continue;
    all.push_back({std::string(violations ? name.substr(violation_prefix.size()) : name), counter.count});
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

constexpr bool in_use(std::uint64_t state) { return state >= 2; }

}  // namespace

layout::Word& Table::counter(std::string_view name) {
  const std::uint64_t key = hash_of(name);
  for (unsigned step = 0; step < max_counters; ++step) {
    auto& entry = map_->counter[(key + step) % max_counters];
    std::uint64_t found = 0;
    if (entry.key.compare_exchange_strong(found, key) || found == key) {
      // Every process that uses this key writes the same name: the next writer completes the work of a killed writer.
      std::memcpy(entry.name.data(), name.data(), std::min(name.size(), entry.name.size() - 1));
      return entry.count;
    }
  }
  // More names than the interface has: the surplus shares the last word, so that no call fails.
  return map_->counter[max_counters - 1].count;
}

std::vector<CallCount> Table::calls() const { return counts(*map_, false); }
std::vector<CallCount> Table::violations_by_kind() const { return counts(*map_, true); }

void Table::violation(std::string_view what) {
  map_->violations.fetch_add(1);
  counter(std::string(violation_prefix) + std::string(what)).fetch_add(1);
}

bool Table::set_fault(const Fault& fault, std::string* error) {
  if (fault.device >= static_cast<int>(map_->devices) && !parent_of(static_cast<unsigned>(fault.device))) {
    if (error) *error = "no such card";
    return false;
  }
  for (auto& slot : map_->fault) {
    std::uint64_t free = 0;
    if (!slot.state.compare_exchange_strong(free, 1)) continue;
    slot.kind = static_cast<std::uint64_t>(fault.kind);
    slot.device = static_cast<std::uint64_t>(fault.device);
    slot.pid = fault.pid;
    slot.nth = fault.nth;
    slot.duration_ns = fault.duration_ns;
    slot.argument = fault.argument;
    slot.after = static_cast<std::uint64_t>(fault.after + 1);
    slot.until_ns = fault.duration_ns == 0 ? 0 : now_ns() + fault.duration_ns;
    slot.hits = 0;
    slot.state = 2 + 4 * map_->fault_generation.fetch_add(1);
    map_->fault_mask.fetch_or(std::uint64_t{1} << static_cast<unsigned>(fault.kind));
    return true;
  }
  if (error) *error = "all " + std::to_string(max_faults) + " places for faults are taken";
  return false;
}

void Table::clear_faults() {
  map_->fault_mask = 0;
  for (auto& slot : map_->fault) slot.state = 0;
}

std::vector<Fault> Table::active_faults() const {
  std::vector<Fault> all;
  for (const auto& slot : map_->fault) {
    if (!in_use(slot.state.load())) continue;
    Fault fault;
    fault.kind = static_cast<FaultKind>(slot.kind.load());
    fault.device = static_cast<int>(slot.device.load());
    fault.pid = slot.pid;
    fault.nth = slot.nth;
    fault.duration_ns = slot.duration_ns;
    fault.argument = slot.argument;
    fault.after = static_cast<int>(slot.after.load()) - 1;
    fault.hits = slot.hits;
    const std::uint64_t until = slot.until_ns.load();
    if (until == 0 || now_ns() < until) all.push_back(fault);
  }
  return all;
}

namespace {

bool is_hang(FaultKind kind) {
  switch (kind) {
    case FaultKind::sync_hang:
    case FaultKind::launch_hang:
    case FaultKind::nvml_hang:
    case FaultKind::checkpoint_hang:
    case FaultKind::lock_hang:
    case FaultKind::unlock_hang:
    case FaultKind::state_hang:
    case FaultKind::restore_hang: return true;
    default: return false;
  }
}

constexpr std::uint64_t only(int device) { return device < 0 ? ~std::uint64_t{0} : std::uint64_t{1} << device; }

bool concerns(const layout::FaultRecord& slot, FaultKind kind, std::uint64_t devices) {
  if (slot.kind != static_cast<std::uint64_t>(kind)) return false;
  const int wanted = static_cast<int>(slot.device.load());
  if (wanted >= 0 && (devices >> wanted & 1) == 0) return false;
  const std::uint64_t pid = slot.pid.load();
  return pid == 0 || pid == static_cast<std::uint64_t>(::getpid());
}

// The duration of a hang is the length of the hang; for every other fault it is the time that the fault stays set.
bool expired(const layout::FaultRecord& slot, FaultKind kind) {
  const std::uint64_t until = slot.until_ns.load();
  return until != 0 && !is_hang(kind) && now_ns() >= until;
}

}  // namespace

std::uint64_t Table::concerned(int device) const {
  if (device < 0 || device >= static_cast<int>(max_places)) return only(device);
  const auto parent = parent_of(static_cast<unsigned>(device));
  return only(device) | (parent ? std::uint64_t{1} << *parent : 0);
}

std::optional<Fault> Table::meet(FaultKind kind, int device) const { return meet_on(kind, concerned(device)); }

std::optional<Fault> Table::meet_on(FaultKind kind, std::uint64_t devices) const {
  if ((map_->fault_mask.load(std::memory_order_relaxed) >> static_cast<unsigned>(kind) & 1) == 0) return std::nullopt;
  for (auto& slot : map_->fault) {
    const std::uint64_t state = slot.state.load();
    if (!in_use(state) || !concerns(slot, kind, devices) || expired(slot, kind)) continue;
    Fault fault{kind,          static_cast<int>(slot.device.load()),    0, slot.nth, slot.duration_ns,
                slot.argument, static_cast<int>(slot.after.load()) - 1, 0};
    fault.hits = slot.hits.fetch_add(1) + 1;
    if (slot.state.load() != state) continue;
    if (fault.nth == 0 || fault.hits == fault.nth) return fault;
  }
  return std::nullopt;
}

bool Table::still_set(FaultKind kind, int device) const {
  return std::any_of(map_->fault.begin(), map_->fault.end(), [&](const auto& slot) {
    return in_use(slot.state.load()) && concerns(slot, kind, concerned(device)) && !expired(slot, kind);
  });
}

void Table::clear() {
  clear_faults();
  map_->violations = 0;
  for (auto& counter : map_->counter) counter.count = 0;
}

}  // namespace simgpu
