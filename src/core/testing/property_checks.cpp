// SPDX-License-Identifier: Apache-2.0
#include "core/testing/property_checks.h"

#include "core/testing/validate.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sublet::core::testing {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// An earlier waiter has memory reserved on the device, or a preemption plan keeps it for another lease.
bool is_reserved_from(const State& state, const Lease& lease, const std::string& uuid) {
  const PreemptionPlan* plan = plan_on(state, uuid);
  if (plan != nullptr && !plan->has(lease.id) && lease.tier <= plan->tier) return true;
  return std::ranges::any_of(state.nominations, [&](const Nomination& held) {
    return contains(held.devices, uuid) && held.waiter != lease.id &&
           state.queue.key(held.waiter)->before(*state.queue.key(lease.id));
  });
}

// Told again here, so that the core's own account is checked.
bool may_be_on(const Lease& lease, const std::string& uuid) {
  if (lease.waits_in_place()) return contains(lease.devices, uuid);
  return lease.wanted_devices.empty() || contains(lease.wanted_devices, uuid);
}

}  // namespace

std::vector<Lease> PropertyChecks::stored() const {
  std::vector<Lease> leases;
  for (const auto& [id, lease] : stored_) leases.push_back(lease);
  return leases;
}

void PropertyChecks::restarted(const State& state) {
  wake_before_ = Time::never();
  for (auto& [id, lease] : stored_) {
    const Lease* loaded = find(state, id);
    ASSERT_NE(loaded, nullptr) << to_string(id);
    lease.expires_at = loaded->expires_at;
    lease.offer_ends_at = loaded->offer_ends_at;
  }
}

void PropertyChecks::before(const State& state, Time now) {
  leases_before_.clear();
  for (const auto& [id, lease] : state.leases.by_id) leases_before_[id] = lease;
  free_before_.clear();
  for (const auto& [uuid, device] : state.devices.by_uuid) free_before_[uuid] = free_on(state, device, rules_, now);
  due_before_ = wake_before_ <= now;
}

void PropertyChecks::after(const State& state, const Fact& fact, const Plan& plan, Time now) {
  if (!plan.outcome.has_value()) check_refusal(plan);
  store(plan);
  check_stored(state);
  for (const std::string& violation : validate(state, rules_, now)) ADD_FAILURE() << violation;
  check_grants(state, plan, now);
  if (plan.outcome.has_value()) {
    check_nobody_waits_who_fits(state, now);
    check_deadlines(plan, now);
    check_program_end(state, fact);
  }
  check_lost_memory(state, fact, now);
  wake_before_ = plan.wake_at;
}

// A refusal changes nothing, but for grants that were due by time alone.
void PropertyChecks::check_refusal(const Plan& plan) const {
  EXPECT_FALSE(plan.outcome.error().detail.empty());
  EXPECT_TRUE(plan.settled.empty());
  const bool granted = std::ranges::all_of(
      plan.changed, [this](const Lease& lease) { return leases_before_.contains(lease.id) && lease.reserves(); });
  EXPECT_TRUE(granted) << "a refusal changes nothing: " << plan.outcome.error().detail;
  for (const Action& action : plan.actions) EXPECT_TRUE(std::holds_alternative<Unpark>(action));
}

void PropertyChecks::store(const Plan& plan) {
  std::set<LeaseId> once;
  for (const Lease& lease : plan.changed) {
    const std::string name = to_string(lease.id);
    EXPECT_TRUE(once.insert(lease.id).second) << name << " twice in one plan";
    EXPECT_FALSE(forgotten_.contains(lease.id)) << name << " is stored again after it was forgotten";
    const auto old = stored_.find(lease.id);
    if (old == stored_.end()) {
      EXPECT_GT(lease.id.number, last_id_) << "an id was used twice";
      last_id_ = std::max(last_id_, lease.id.number);
    } else {
      EXPECT_GE(lease.generation, old->second.generation) << name;
      EXPECT_FALSE(old->second.ended() && (!lease.ended() || lease.end_reason != old->second.end_reason))
          << name << ": an end is final";
    }
    EXPECT_EQ(lease.ended(), lease.end_reason != EndReason::none) << name;
    stored_[lease.id] = lease;
  }
  for (const LeaseId id : plan.settled) {
    const auto lease = stored_.find(id);
    ASSERT_TRUE(lease != stored_.end() && lease->second.ended() && lease->second.had_process) << to_string(id);
  }
  std::erase_if(stored_, [&](const auto& entry) {
    const auto& [id, lease] = entry;
    const bool settled = std::ranges::find(plan.settled, id) != plan.settled.end();
    if (!lease.ended() || (lease.had_process && !settled)) return false;
    forgotten_.insert(id);
    return true;
  });
}

// The state holds what was stored, and nothing else.
void PropertyChecks::check_stored(const State& state) const {
  ASSERT_EQ(state.leases.by_id.size(), stored_.size());
  for (const auto& [id, lease] : stored_) {
    const Lease* kept = find(state, id);
    ASSERT_NE(kept, nullptr) << to_string(id);
    const auto fields = [](const Lease& of) {
      return std::tie(of.state, of.generation, of.devices, of.vram, of.resize, of.had_process, of.expires_at,
                      of.offer_ends_at, of.stop_at, of.exit_status, of.parking, of.preemption_request, of.resumed_at);
    };
    EXPECT_TRUE(fields(*kept) == fields(lease)) << to_string(id) << " differs from what was stored";
  }
}

// A grant rests on known devices, and never promises more than the device has.
void PropertyChecks::check_grants(const State& state, const Plan& plan, Time now) const {
  for (const Lease& lease : plan.changed) {
    const auto old = leases_before_.find(lease.id);
    const bool waited = old == leases_before_.end() || old->second.state == LeaseState::queued;
    if (!waited || !lease.reserves()) continue;
    EXPECT_LE(lease.vram, lease.asked_vram);
    EXPECT_GE(lease.vram, lease.min_vram > Bytes{} ? lease.min_vram : lease.asked_vram);
    for (const std::string& uuid : lease.devices) {
      const Device& device = state.devices.by_uuid.at(uuid);
      EXPECT_TRUE(is_known(state, device, rules_, now)) << "granted on an unknown device";
      EXPECT_TRUE(is_in_service(state, uuid)) << "granted on a device out of service";
      EXPECT_GE(free_on(state, device, rules_, now) + rules_.headroom, Bytes{}) << "promised more than there is";
      Bytes reserved;
      for (const LeaseId id : device.leases)
        if (const Lease* other = find(state, id); other->reserves()) reserved += other->reserved_each();
      EXPECT_LE(std::max(device.reading.used, reserved), capacity_of(device, rules_) + rules_.headroom);
    }
  }
}

void PropertyChecks::check_nobody_waits_who_fits(const State& state, Time now) const {
  for (const auto& [id, lease] : stored_) {
    if (!lease.queues() && !lease.waits_in_place()) continue;
    if (lease.resize) {
      EXPECT_EQ(lease.state, LeaseState::active) << to_string(id) << " waits to grow";
    }
    int fits = 0;
    for (const auto& [uuid, device] : state.devices.by_uuid) {
      if (!may_be_on(lease, uuid) || !may_grant_on(state, device, rules_, now)) continue;
      fits +=
          !is_reserved_from(state, lease, uuid) && free_on(state, device, rules_, now) >= need_on(state, lease, uuid);
    }
    EXPECT_LT(fits, lease.device_count) << to_string(id) << " waits although it fits";
  }
}

// No deadline is overdue after a step, and the core asks to be woken for the next one.
void PropertyChecks::check_deadlines(const Plan& plan, Time now) const {
  Time next = Time::never();
  for (const auto& [id, lease] : stored_) {
    if (lease.state == LeaseState::offered) next = std::min(next, *lease.offer_ends_at);
    if (lease.state == LeaseState::active && lease.expires_at) next = std::min(next, *lease.expires_at);
  }
  EXPECT_GT(next, now) << "a deadline is overdue";
  EXPECT_LE(plan.wake_at, next);
  EXPECT_GT(plan.wake_at, now);
}

// A device that is not known, or a process without a lease, never makes memory free.
void PropertyChecks::check_lost_memory(const State& state, const Fact& fact, Time now) const {
  const bool news = std::holds_alternative<Snapshot>(fact);
  const bool failed = std::holds_alternative<SnapshotFailed>(fact);
  for (const auto& [uuid, free] : free_before_) {
    const auto device = state.devices.by_uuid.find(uuid);
    if (device == state.devices.by_uuid.end()) continue;
    const bool lost = news && (device->second.lost || !device->second.problem.empty());
    const Bytes left = free_on(state, device->second, rules_, now);
    EXPECT_TRUE(!(lost || (failed && !due_before_)) || left <= std::max(free, Bytes{})) << uuid;
    EXPECT_TRUE(!lost || left == Bytes{}) << uuid;
  }
}

void PropertyChecks::check_program_end(const State& state, const Fact& fact) const {
  const auto* ended = std::get_if<ProgramEnded>(&fact);
  if (ended == nullptr) return;
  const auto old = leases_before_.find(ended->lease);
  ASSERT_NE(old, leases_before_.end());
  const Lease* lease = find(state, ended->lease);
  EXPECT_TRUE(old->second.owner.kind != OwnerKind::process || lease == nullptr || lease->ended())
      << to_string(ended->lease) << " outlives its owner";
}

}  // namespace sublet::core::testing
