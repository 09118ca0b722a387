// SPDX-License-Identifier: Apache-2.0
// Helper for tests of the core: a state, its rules, a clock that the test moves, and short names for events.
#pragma once

#include "core/step.h"
#include "core/testing/validate.h"
#include "explain/explain.h"
#include "explain/dry_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace sublet::core::testing {

using namespace std::chrono_literals;

// The number in an environment variable, or `otherwise` where the variable is not set.
inline std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

inline Lease wish(Bytes vram, std::string consumer = "train") {
  Lease lease;
  lease.uid = 1000;
  lease.user = "ana";
  lease.tenant = "ana";
  lease.consumer = std::move(consumer);
  lease.vram = vram;
  lease.owner.kind = OwnerKind::token;
  return lease;
}

// The consumer of a lease made by wish().
inline Consumer anas(std::string name) { return {1000, std::move(name)}; }

inline ProcessRef process(int pid) { return {pid, static_cast<std::uint64_t>(pid) * 10}; }

inline Owner kept_process(int pid) {
  return {OwnerKind::process, process(pid), process(pid - 1), "/run/exit/" + std::to_string(pid)};
}

inline std::string uuid_of(int index) { return "GPU-" + std::to_string(index); }

// A plausible reading: the use of the processes, and `hidden` bytes of no listed process.
inline DeviceReading gpu(int index, Bytes total, std::vector<ProcessUse> processes = {}, Bytes hidden = {}) {
  DeviceReading reading;
  reading.uuid = uuid_of(index);
  reading.name = "Test Card";
  reading.index = index;
  reading.total = total;
  reading.used = hidden;
  for (const ProcessUse& use : processes) reading.used += use.used.value_or(Bytes{});
  reading.processes = std::move(processes);
  return reading;
}

inline ProcessUse uses(int pid, Bytes used, LeaseId lease = {}) { return {process(pid), used, lease}; }

// True if the plan stores nothing, or names a transition that tests can interrupt: see lease/transitions.h.
inline bool has_name(const Plan& plan) {
  const bool stores = !plan.changed.empty() || !plan.reasons.empty() || !plan.settled.empty() || !plan.grants.empty() ||
                      !plan.records.empty() || !plan.preemptions.empty();
  return !stores || !plan.transitions.empty();
}

// Larger states are not validated after each step: that would take minutes.
inline constexpr std::size_t validated_leases = 200;

inline constexpr HostMemory plenty{256 * GiB, std::nullopt};

struct World {
 private:
  Plan decide(const Fact& fact) {
    Plan plan = core::step(state, rules, fact, now);
    EXPECT_TRUE(has_name(plan)) << "nothing can be interrupted that has no name";
    if (state.leases.by_id.size() <= validated_leases)
      for (const std::string& violation : validate(state, rules, now)) ADD_FAILURE() << violation;
    reasons.insert(reasons.end(), plan.reasons.begin(), plan.reasons.end());
    actions.insert(actions.end(), plan.actions.begin(), plan.actions.end());
    for (const PlanChange& change : plan.preemptions) {
      if (change.over) plans.erase(change.record.id);
      else plans[change.record.id] = change.record;
    }
    return plan;
  }

  // Adds the plans of the claims to the last plan.
  void claim_offers() {
    std::vector<LeaseId> offered;
    for (const Lease& lease : last.changed)
      if (lease.state == LeaseState::offered && is_held(state, lease.id)) offered.push_back(lease.id);
    for (const LeaseId id : offered) {
      const Plan claim = decide(Claim{id});
      last.changed.insert(last.changed.end(), claim.changed.begin(), claim.changed.end());
      last.reasons.insert(last.reasons.end(), claim.reasons.begin(), claim.reasons.end());
      last.actions.insert(last.actions.end(), claim.actions.begin(), claim.actions.end());
      last.wake_at = claim.wake_at;
    }
  }

 public:
  State state;
  Rules rules;
  Time now{1'000'000'000'000'000'000};
  Plan last;
  std::vector<Reason> reasons;                // of all steps
  std::map<std::uint64_t, PlanRecord> plans;  // as a store would hold them
  std::vector<Action> actions;
  HostMemory ram = plenty;  // of the machine, at the next snapshot
  bool claims = true;       // those who hold a connection claim their offers at once

  World() { rules.headroom = {}; }

  Plan& step(const Fact& fact) {
    last = decide(fact);
    if (claims) claim_offers();
    return last;
  }

  // Lets time pass and wakes the core at wake_at, as the daemon does.
  void pass(Duration d) {
    const Time until = now + d;
    while (last.wake_at <= until) {
      now = std::max(now, last.wake_at);
      const Time before = last.wake_at;
      step(Tick{});
      ASSERT_GT(last.wake_at, before) << "the same alarm twice";
    }
    now = until;
  }

  Plan& snapshot(std::vector<DeviceReading> devices) { return step(Snapshot{now, std::move(devices), {}, {}, ram}); }

  Result<LeaseId> ask(Lease lease, bool may_queue = true, bool held = false) {
    const Submit fact{std::move(lease), may_queue, held};
    if (const Status may = may_queue ? Status() : explain::would_start(state, rules, fact, now); !may)
      return may.error();
    return step(fact).outcome;
  }
  LeaseId submit(Lease lease, bool held = false) {
    const Result<LeaseId> id = ask(std::move(lease), true, held);
    EXPECT_TRUE(id.has_value()) << id.error().detail;
    return id.has_value() ? *id : LeaseId{};
  }
  LeaseId submit(Bytes vram) { return submit(wish(vram)); }
  bool accepts(const Fact& fact) { return step(fact).outcome.has_value(); }
  // The error of a fact that must be refused.
  Error refusal(const Fact& fact) {
    const Result<LeaseId> outcome = step(fact).outcome;
    EXPECT_FALSE(outcome.has_value()) << "it is not refused";
    return outcome.has_value() ? Error{} : outcome.error();
  }

  // A lease whose program runs under a keeper.
  LeaseId run(Bytes vram, int pid, std::string consumer = "train", std::optional<Duration> ttl = {}) {
    Lease lease = wish(vram, std::move(consumer));
    lease.owner.kind = OwnerKind::connection;
    lease.ttl = ttl;
    const LeaseId id = submit(lease, true);
    EXPECT_EQ(at(id).state, LeaseState::active);
    step(Attach{id, 0, kept_process(pid), true, {}});
    return id;
  }

  const Lease& at(LeaseId id) const {
    static const Lease none;
    const Lease* lease = find(state, id);
    EXPECT_NE(lease, nullptr) << to_string(id) << " has left the state";
    return lease == nullptr ? none : *lease;
  }
  // The states of the leases in words, such as "active paused"; "gone" for a lease that has left the state.
  template <typename... Ids>
  std::string states(Ids... ids) const {
    std::string all;
    for (const LeaseId id : {ids...})
      all += (all.empty() ? "" : " ") + std::string(gone(id) ? "gone" : to_string(state_of(id)));
    return all;
  }
  std::string device_of(LeaseId id) const { return at(id).devices.empty() ? "" : at(id).devices.front(); }
  bool gone(LeaseId id) const { return find(state, id) == nullptr; }
  LeaseState state_of(LeaseId id) const { return at(id).state; }

  // The value of a lease in the last plan. So the end of a lease is seen that left the state with that plan.
  const Lease& told(LeaseId id) const {
    static const Lease none;
    for (const Lease& lease : last.changed)
      if (lease.id == id) return lease;
    ADD_FAILURE() << to_string(id) << " is not in the plan";
    return none;
  }

  Bytes free(int index) const { return free_on(state, state.devices.by_uuid.at(uuid_of(index)), rules, now); }

  // The arguments of the newest reason of that kind; fails, and has none, if there is no such reason.
  const ReasonArgs& reason(LeaseId id, ReasonKind kind) const {
    static const ReasonArgs none;
    const auto newest = std::find_if(reasons.rbegin(), reasons.rend(),
                                     [&](const Reason& reason) { return reason.lease == id && reason.kind == kind; });
    if (newest != reasons.rend()) return newest->args;
    ADD_FAILURE() << to_string(id) << " was given no reason of the kind " << to_string(kind);
    return none;
  }

  auto times_told(LeaseId id, ReasonKind kind) const {
    return std::count_if(reasons.begin(), reasons.end(),
                         [&](const Reason& reason) { return reason.lease == id && reason.kind == kind; });
  }

  int signals(LeaseId id, bool kill) const {
    int count = 0;
    for (const Action& action : actions)
      if (const auto* signal = std::get_if<SignalProgram>(&action))
        count += signal->lease == id && signal->kill == kill;
    return count;
  }
  // The number of actions of the kind, and the newest of them.
  template <typename Kind>
  int ordered() const {
    return static_cast<int>(
        std::count_if(actions.begin(), actions.end(), [](const Action& a) { return std::holds_alternative<Kind>(a); }));
  }
  template <typename Kind>
  const Kind* newest() const {
    const Kind* found = nullptr;
    for (const Action& action : actions)
      if (const auto* kind = std::get_if<Kind>(&action)) found = kind;
    return found;
  }
  // The reliability of the method for a program of wish().
  double trust(std::string consumer, PauseMethod by = PauseMethod::driver) const {
    const MethodRecord* record = record_of(state, anas(std::move(consumer)), by);
    return record == nullptr ? 1 : record->reliability();
  }
  explain::QueueInfo info(LeaseId id) const { return explain::queue_info(state, rules, at(id), now); }
  // Everything that would help the lease, one line for each advice.
  std::string helps(LeaseId id) const {
    std::string all;
    for (const std::string& help : explain::what_would_help(state, rules, at(id), now)) all += help + "\n";
    return all;
  }
  bool wants_snapshot() const {
    return std::any_of(last.actions.begin(), last.actions.end(),
                       [](const Action& action) { return std::holds_alternative<TakeSnapshot>(action); });
  }

  std::vector<Lease> stored() const {
    std::vector<Lease> leases;
    for (const auto& [id, lease] : state.leases.by_id) leases.push_back(lease);
    return leases;
  }
  void restart() {
    std::vector<PlanRecord> records;
    for (const auto& [id, record] : plans) records.push_back(record);
    state = State::load(stored(), {}, state.leases.last_id, rules, now);
    restore_plans(state, std::move(records), now);
    step(Tick{});
  }
};

// One card of 24 GiB, read once.
struct OneCard : World {
  OneCard() { measure(); }
  Plan& measure(std::vector<ProcessUse> processes = {}, Bytes hidden = {}) {
    return snapshot({gpu(0, 24 * GiB, std::move(processes), hidden)});
  }
};

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

#define EXPECT_SAYS(text, part) EXPECT_TRUE(contains((text), (part))) << (text)

}  // namespace sublet::core::testing
