// SPDX-License-Identifier: Apache-2.0
#include "core/testing/oracle.h"

#include "core/methods.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace sublet::core::testing {
namespace {

bool may_use(const Lease& lease, const std::string& uuid) {
  return lease.wanted_device.empty() || lease.wanted_device == uuid;
}

bool on(const Lease& lease, const std::string& uuid) {
  return std::find(lease.devices.begin(), lease.devices.end(), uuid) != lease.devices.end();
}

// The order as the design words it, at one moment: age is counted, no static key.
bool goes_before(const Lease& a, const Lease& b, const Rules& rules, Time now) {
  if (a.tier != b.tier) return a.tier > b.tier;
  if (!(rules.aging_per_minute > 0)) {
    if (a.priority != b.priority) return a.priority > b.priority;
    return a.queued_at != b.queued_at ? a.queued_at < b.queued_at : a.id < b.id;
  }
  // In the time that a point is worth, which is a whole number of nanoseconds: exact, as the order is.
  const auto point = std::llround(60e9 / rules.aging_per_minute);
  const auto aged = [point, now](const Lease& lease) {
    return lease.priority * point + (now - lease.queued_at).count();
  };
  return aged(a) != aged(b) ? aged(a) > aged(b) : a.id < b.id;
}

}  // namespace

bool Oracle::booked(const Lease& lease, const std::string& uuid) const {
  return on(lease, uuid) && (lease.reserves() || unsettled_.contains({lease.id, uuid}));
}

Bytes Oracle::charge_of(const Lease& lease, const std::string& uuid) const {
  const auto found = measured_.find({lease.id, uuid});
  const Measured measured = found == measured_.end() ? Measured{} : found->second;
  const auto coming = coming_.find({lease.id, uuid});
  const Bytes back = coming == coming_.end() || lease.state == LeaseState::paused ? Bytes{} : coming->second;
  if (lease.reserves() || !measured.after_end) return std::max({lease.reserved_each(), measured.used, back});
  return measured.used;
}

void Oracle::forget_measured(LeaseId id) {
  std::erase_if(measured_, [id](const auto& entry) { return entry.first.first == id; });
}

Time Oracle::unheld_until(const Lease& lease) const { return std::max(unheld_.at(lease.id) + rules_.linger, back_by_); }

std::vector<Lease> Oracle::stored() const {
  std::vector<Lease> leases;
  for (const auto& [id, lease] : store_) leases.push_back(lease);
  return leases;
}

void Oracle::restarted(Time now) {
  measured_.clear();
  coming_.clear();
  gone_.clear();
  ended_programs_.clear();
  killed_.clear();
  held_.clear();
  newest_ = {};
  back_by_ = now + rules_.reconnect;
  unheld_.clear();
  for (auto& [id, lease] : store_) {
    // Whether only its program is still waited for was not stored: its bytes are measured once more.
    for (const std::string& uuid : lease.devices)
      if (lease.ended()) unsettled_.insert({id, uuid});
    if (lease.ended()) continue;
    if (lease.owner.kind == OwnerKind::connection) unheld_[id] = now;
    if (lease.expires_at) lease.expires_at = std::max(*lease.expires_at, back_by_);
    if (lease.state == LeaseState::offered) lease.offer_ends_at = now + std::max(rules_.claim_window, rules_.reconnect);
  }
}

void Oracle::before(const State& state, const Fact& fact, Time now) {
  if (std::holds_alternative<ClockGap>(fact)) back_by_ = now + rules_.reconnect;
  leases_before_.clear();
  for (const auto& [id, lease] : state.leases()) leases_before_[id] = lease;
  free_before_.clear();
  for (const auto& [uuid, device] : state.devices()) free_before_[uuid] = state.effective_free(device, rules_, now);
  due_before_ = wake_before_ <= now;
  made_room_for_.clear();
  for (const PreemptionPlan& preemption : state.plans()) made_room_for_.insert(preemption.preemptor);
}

void Oracle::after(const State& state, const Fact& fact, const Plan& plan, Time now) {
  if (!plan.outcome.has_value()) {
    // Where room is held, a waiter's turn may come by time alone.
    const bool slices = rules_.reserve_after > Duration{} &&
                        std::all_of(plan.changed.begin(), plan.changed.end(), [&](const Lease& lease) {
                          const auto old = leases_before_.find(lease.id);
                          return old != leases_before_.end() && lease.reserves();
                        });
    EXPECT_TRUE(slices || (plan.changed.empty() && plan.reasons.empty()))
        << "a refusal changes nothing: " << plan.outcome.error().detail;
    EXPECT_TRUE(plan.settled.empty());
    for (const Action& action : plan.actions)  // whose turn has come may be one that comes back
      EXPECT_TRUE(slices && std::holds_alternative<Unpark>(action));
    EXPECT_FALSE(plan.outcome.error().detail.empty());
  }
  if (const auto* snapshot = std::get_if<Snapshot>(&fact)) follow_snapshot(state, *snapshot);
  follow_owner(fact, plan, now);
  follow_plan(state, plan);
  follow_ends(fact, plan, now);
  follow_returns(state, plan);
  check_store(state);
  check_sums(state, now);
  check_settling(state);
  check_ledger(state);
  check_grants(state, plan, now);
  if (plan.outcome.has_value()) check_indices(state, now);
  check_order(state, now);
  check_time(state, plan, now);
  check_loss(state, fact, now);
  check_program_end(state, fact, plan);
  wake_before_ = plan.wake_at;
}

// -------------------------------------------------------------------------------- checking

// The state is what was stored; each lease is in exactly the indices of its state.
void Oracle::check_store(const State& state) const {
  ASSERT_EQ(state.leases().size(), store_.size());
  for (const auto& [id, lease] : store_) {
    const Lease* kept = state.find(id);
    ASSERT_NE(kept, nullptr) << to_string(id);
    EXPECT_EQ(kept->state, lease.state);
    EXPECT_EQ(kept->generation, lease.generation);
    EXPECT_EQ(kept->devices, lease.devices);
    EXPECT_EQ(kept->vram, lease.vram);
    EXPECT_EQ(kept->resize, lease.resize);
    EXPECT_EQ(kept->had_process, lease.had_process);
    EXPECT_EQ(kept->expires_at, lease.expires_at);
    EXPECT_EQ(kept->offer_ends_at, lease.offer_ends_at);
    EXPECT_EQ(kept->stop_at, lease.stop_at);
    EXPECT_EQ(kept->exit_status, lease.exit_status);
    EXPECT_EQ(kept->parking, lease.parking);
    EXPECT_EQ(kept->preemption_request, lease.preemption_request);
    EXPECT_EQ(kept->resumed_at, lease.resumed_at);
    EXPECT_EQ(lease.parking.has_value(),
              lease.state == LeaseState::pausing || lease.state == LeaseState::resuming || lease.parked())
        << to_string(id);
    EXPECT_EQ(state.queue().contains(id), lease.state == LeaseState::queued || lease.waits_in_place());
    for (const auto& [uuid, device] : state.devices())
      EXPECT_EQ(device.leases.count(id), booked(lease, uuid) ? 1u : 0u) << to_string(id);
    // All of its devices or none, each once.
    const std::set<std::string> distinct(lease.devices.begin(), lease.devices.end());
    EXPECT_EQ(distinct.size(), lease.devices.size()) << to_string(id);
    EXPECT_TRUE(!lease.reserves() || distinct.size() == static_cast<std::size_t>(lease.device_count)) << to_string(id);
    EXPECT_TRUE(lease.state != LeaseState::queued || distinct.empty()) << to_string(id);
    const bool named = !lease.tag.empty() && !lease.ended();
    EXPECT_TRUE(!named || state.find_tag(lease.uid, lease.tag) == kept) << lease.tag;
  }
}

void Oracle::check_sums(const State& state, Time now) const {
  for (const auto& [uuid, device] : state.devices()) {
    Bytes charged, used, settling, unseen, residues;
    std::size_t count = 0;
    std::array<Device::Claimable, tier_count> claimable{};
    int pausing = 0;
    for (const auto& [id, lease] : store_) {
      if (!booked(lease, uuid)) continue;
      ++count;
      pausing += lease.state == LeaseState::pausing;
      if (lease.reserves() && might_yield(lease)) {
        Device::Claimable& of_tier = claimable[static_cast<std::size_t>(lease.tier)];
        ++of_tier.leases;
        of_tier.charged += charge_of(lease, uuid);
      }
      charged += charge_of(lease, uuid);
      if (lease.ended()) settling += charge_of(lease, uuid);
      const auto measured = measured_.find({id, uuid});
      const Bytes its = measured != measured_.end() ? measured->second.used : Bytes{};
      used += its;
      if (lease.parked()) residues += lease.parking->residue;
      unseen += std::max(lease.kept_unseen() - its, Bytes{});
      EXPECT_EQ(state.charged(lease, uuid), charge_of(lease, uuid)) << to_string(id);
    }
    EXPECT_EQ(device.charged, charged) << uuid;
    EXPECT_EQ(device.settling, settling) << uuid;
    EXPECT_EQ(device.leased_used, used) << uuid;
    EXPECT_EQ(device.by_charge.size(), count);
    EXPECT_EQ(device.pausing, pausing) << uuid;
    for (std::size_t tier = 0; tier < tier_count; ++tier) {
      EXPECT_EQ(device.might_yield[tier].leases, claimable[tier].leases) << uuid;
      EXPECT_EQ(device.might_yield[tier].charged, claimable[tier].charged) << uuid;
      EXPECT_EQ(state.where_might_yield(static_cast<Tier>(tier)).contains(uuid), claimable[tier].leases > 0) << uuid;
    }
    Bytes unleased, listed;
    for (const ProcessUse& use : device.reading.processes) {
      listed += use.used.value_or(Bytes{});
      const auto lease = store_.find(use.lease);
      const bool counted =
          lease != store_.end() && booked(lease->second, uuid) && measured_.contains({use.lease, uuid});
      if (!counted) unleased += use.used.value_or(Bytes{});
    }
    // A lease that was granted after the reading is not measured yet: what it is listed with counts as
    // other's still.
    const Bytes other = std::max({unleased, device.reading.used - used - unseen - device.arrived, Bytes{}});
    EXPECT_TRUE(device.arrived >= Bytes{} && device.arrived <= std::max(device.reading.used - listed, Bytes{})) << uuid;
    EXPECT_EQ(device.other, other) << uuid;
    const bool known =
        device.read_at && device.problem.empty() && !device.lost && now - *device.read_at <= rules_.max_age;
    // What parked leases keep is in the headroom first.
    const Bytes free = device.reading.total - device.reading.driver_reserved - std::max(rules_.headroom, residues) -
                       (charged - residues) - other;
    EXPECT_EQ(state.effective_free(device, rules_, now), known ? free : Bytes{}) << uuid;
  }
}

// What host memory is promised to, and what of that is not taken yet.
void Oracle::check_ledger(const State& state) const {
  Bytes entries, unsettled;
  std::map<std::uint32_t, Bytes> users;
  for (const auto& [id, lease] : store_) {
    if (!lease.parking || lease.ended()) continue;
    entries += lease.parking->host_bytes;
    users[lease.uid] += lease.parking->host_bytes;
    EXPECT_TRUE(state.away().contains(id)) << to_string(id);
    if (!lease.parking->measured) unsettled += lease.parking->host_bytes;
  }
  EXPECT_EQ(state.ledger_entries(), entries);
  EXPECT_EQ(state.ledger_unsettled(), unsettled);
  for (const auto& [uid, bytes] : users) EXPECT_EQ(state.ledger_of(uid), bytes) << uid;
}

// Nothing that ended with a process is forgotten before it is measured, nor charged after.
void Oracle::check_settling(const State& state) const {
  for (const auto& [id, lease] : store_)
    for (const std::string& uuid : lease.devices)
      EXPECT_EQ(state.charge(id, uuid).settling, unsettled_.contains({id, uuid})) << to_string(id);
  for (const auto& entry : unsettled_) EXPECT_NE(state.find(entry.first), nullptr) << to_string(entry.first);
}

// Room there is held for one that stands before the lease, or made for one to whose tier it does not go ahead.
bool Oracle::held_from(const State& state, const Lease& lease, const std::string& uuid) {
  const PreemptionPlan* preemption = state.plan_on(uuid);
  if (preemption != nullptr && preemption->preemptor != lease.id && lease.tier <= preemption->tier) return true;
  const auto& rooms = state.nominations();
  return std::any_of(rooms.begin(), rooms.end(), [&](const Nomination& room) {
    const bool here = std::find(room.devices.begin(), room.devices.end(), uuid) != room.devices.end();
    return here && room.waiter != lease.id && state.queue().key(room.waiter)->before(*state.queue().key(lease.id));
  });
}

Bytes Oracle::need_of(const Lease& lease) const {
  Bytes need;
  for (const std::string& uuid : lease.devices) need = std::max(need, need_on(lease, uuid));
  return need;
}

Bytes Oracle::need_on(const Lease& lease, const std::string& uuid) const {
  const Bytes whole = lease.parking ? needed_.at({lease.id, uuid}) : Bytes{};
  return std::max(std::max(lease.wanted_vram(), whole) - charge_of(lease, uuid), Bytes{});
}

// On how many devices that the lease may use there is so much room.
int Oracle::devices_with(const State& state, const Lease& lease, const std::map<std::string, Bytes>& room,
                         Time now) const {
  int count = 0;
  for (const auto& [uuid, device] : state.devices()) {
    if (!may_use(lease, uuid) || !state.known(device, rules_, now) || held_from(state, lease, uuid)) continue;
    const auto extra = room.find(uuid);
    const Bytes free = state.effective_free(device, rules_, now) + (extra == room.end() ? Bytes{} : extra->second);
    if (free >= lease.least()) ++count;
  }
  return count;
}

// Grants rest on known devices with room for all that is promised there, and pass nobody who would have fitted.
void Oracle::check_grants(const State& state, const Plan& plan, Time now) const {
  const bool spot_ended = std::any_of(plan.changed.begin(), plan.changed.end(), [](const Lease& lease) {
    return lease.tier == Tier::spot && lease.end_reason == EndReason::revoked;
  });
  for (const Lease& lease : plan.changed) {
    const auto old = leases_before_.find(lease.id);
    const bool waited = old == leases_before_.end() || old->second.state == LeaseState::queued;
    if (!waited || !lease.reserves()) continue;
    check_promises(state, lease, now);
    // What was kept for whom room was being made may be there for all again before the step is over.
    if (!made_room_for_.empty() || spot_ended || !state.plans().empty()) continue;
    if (due_before_) continue;  // bytes may have come free after it was granted, within the step
    std::map<std::string, Bytes> given;
    for (const std::string& uuid : lease.devices) given[uuid] = lease.vram;
    for (const auto& [id, other] : store_) {
      if (other.state != LeaseState::queued || !leases_before_.contains(id)) continue;
      Lease as_queued = lease;
      if (old != leases_before_.end()) as_queued.queued_at = old->second.queued_at;
      EXPECT_FALSE(goes_before(other, as_queued, rules_, now) &&
                   devices_with(state, other, given, now) >= other.device_count)
          << to_string(id) << " was passed over by " << to_string(lease.id);
    }
  }
  for (const auto& [id, lease] : store_) {
    if (!plan.outcome.has_value()) continue;
    if (lease.waits_in_place()) {
      const bool fits =
          std::all_of(lease.devices.begin(), lease.devices.end(), [&, &l = lease](const std::string& uuid) {
            const Device& device = state.devices().at(uuid);
            return state.known(device, rules_, now) && !held_from(state, l, uuid) &&
                   state.effective_free(device, rules_, now) >= need_on(l, uuid);
          });
      EXPECT_FALSE(fits) << to_string(id) << " does not grow, or come back, although it could";
      EXPECT_EQ(lease.state, lease.resize ? LeaseState::active : LeaseState::paused);
    }
    if (lease.state != LeaseState::queued) continue;
    EXPECT_LT(devices_with(state, lease, {}, now), lease.device_count) << to_string(id) << " waits although it fits";
  }
}

void Oracle::check_promises(const State& state, const Lease& lease, Time now) const {
  EXPECT_LE(lease.vram, lease.asked_vram);
  EXPECT_GE(lease.vram, lease.min_vram > Bytes{} ? lease.min_vram : lease.asked_vram);
  for (const std::string& uuid : lease.devices) {
    const Device& device = state.devices().at(uuid);
    EXPECT_TRUE(state.known(device, rules_, now)) << "granted on a guess";
    // Who comes back has in its room what it kept of the headroom.
    EXPECT_GE(state.effective_free(device, rules_, now) + rules_.headroom, Bytes{}) << "promised more than there is";
    Bytes reserved;
    for (const auto& [id, other] : store_)
      if (other.reserves() && on(other, uuid)) reserved += other.reserved_each();
    EXPECT_LE(std::max(device.reading.used, reserved), State::capacity(device, rules_) + rules_.headroom);
  }
}

// The indices over all devices say what their devices say.
void Oracle::check_indices(const State& state, Time now) const {
  std::set<DeviceFree> rooms;
  std::size_t unread = 0;
  for (const auto& [uuid, device] : state.devices()) {
    if (!device.read_at) ++unread;
    if (state.known(device, rules_, now))
      rooms.insert({state.effective_free(device, rules_, now), device.reading.index, uuid});
  }
  EXPECT_EQ(state.unread(), unread);
  ASSERT_EQ(state.rooms().size(), rooms.size());
  auto expected = rooms.begin();
  for (const DeviceFree& room : state.rooms()) {
    EXPECT_EQ(room.device, expected->device);
    EXPECT_EQ(room.free, (expected++)->free);
  }
}

void Oracle::check_order(const State& state, Time now) const {
  std::vector<Lease> waiting;
  Bytes bytes;
  for (const auto& [id, lease] : store_)
    if (lease.state == LeaseState::queued) {
      waiting.push_back(lease), bytes += lease.device_count * lease.vram;
    } else if (lease.waits_in_place()) {
      waiting.push_back(lease), bytes += static_cast<std::int64_t>(lease.devices.size()) * need_of(lease);
      waiting.back().queued_at = lease.waits_since();
    }
  std::sort(waiting.begin(), waiting.end(),
            [this, now](const Lease& a, const Lease& b) { return goes_before(a, b, rules_, now); });
  std::vector<LeaseId> ids;
  ids.reserve(waiting.size());
  for (const Lease& lease : waiting) ids.push_back(lease.id);
  EXPECT_EQ(state.queue().in_order(), ids);
  EXPECT_EQ(state.queue().waiting_bytes(), bytes);
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(state.queue().place(ids[i]), i + 1);
}

// No deadline is overdue after a step, and the core asks to be woken for the next one.
void Oracle::check_time(const State& state, const Plan& plan, Time now) const {
  if (!plan.outcome.has_value()) return;
  Time next = Time::never();
  const auto expect_ahead = [&](Time at, const char* what, LeaseId id) {
    EXPECT_GT(at, now) << what << " of " << to_string(id) << " is overdue";
    next = std::min(next, at);
  };
  for (const auto& [id, lease] : store_) {
    if (lease.ended()) continue;
    if (lease.state == LeaseState::offered) expect_ahead(*lease.offer_ends_at, "the offer", id);
    if (lease.state == LeaseState::active && lease.expires_at) expect_ahead(*lease.expires_at, "the time limit", id);
    if (lease.owner.kind == OwnerKind::connection && unheld_.contains(id))
      expect_ahead(unheld_until(lease), "the linger", id);
  }
  EXPECT_LE(plan.wake_at, next);
  EXPECT_GT(plan.wake_at, now);
  (void)state;
}

// What is not known, and what others take, never makes room.
void Oracle::check_loss(const State& state, const Fact& fact, Time now) const {
  const bool news = std::holds_alternative<Snapshot>(fact);
  const bool failed = std::holds_alternative<SnapshotFailed>(fact);
  for (const auto& [uuid, free] : free_before_) {
    const auto device = state.devices().find(uuid);
    if (device == state.devices().end()) continue;
    const bool lost = news && (device->second.lost || !device->second.problem.empty());
    const Bytes left = state.effective_free(device->second, rules_, now);
    EXPECT_TRUE(!(lost || (failed && !due_before_)) || left <= std::max(free, Bytes{})) << uuid;
    EXPECT_TRUE(!lost || left == Bytes{}) << uuid;
  }
}

void Oracle::check_program_end(const State& state, const Fact& fact, const Plan& plan) const {
  const auto* ended = std::get_if<ProgramEnded>(&fact);
  if (ended == nullptr || !plan.outcome.has_value()) return;
  const auto old = leases_before_.find(ended->lease);
  ASSERT_NE(old, leases_before_.end());
  const Lease* lease = state.find(ended->lease);
  EXPECT_TRUE(old->second.owner.kind != OwnerKind::process || lease == nullptr || lease->ended())
      << to_string(ended->lease) << " outlives its owner";
}

}  // namespace sublet::core::testing
