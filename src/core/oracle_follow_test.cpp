// SPDX-License-Identifier: Apache-2.0
// What the oracle is told, kept without the core's indices.
#include "core/testing/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sublet::core::testing {

// -------------------------------------------------------------------------------- following

void Oracle::follow_plan(const State& state, const Plan& plan) {
  std::set<LeaseId> once;
  for (const Lease& lease : plan.changed) {
    EXPECT_TRUE(once.insert(lease.id).second) << to_string(lease.id) << " twice in one plan";
    EXPECT_EQ(closed_.count(lease.id), 0u) << to_string(lease.id) << " is back from the dead";
    const auto old = store_.find(lease.id);
    if (old == store_.end()) {
      EXPECT_GT(lease.id.number, last_id_) << "an id was used twice";
      last_id_ = std::max(last_id_, lease.id.number);
    } else {
      EXPECT_GE(lease.generation, old->second.generation);
      EXPECT_TRUE(lease.state == old->second.state || lease.generation > old->second.generation ||
                  lease.state == LeaseState::queued || lease.parking || old->second.parking)
          << to_string(lease.id) << ": a new state without a new generation";
      EXPECT_FALSE(old->second.ended() && (!lease.ended() || lease.end_reason != old->second.end_reason))
          << "an end is final";
    }
    if (lease.ended() && (old == store_.end() || !old->second.ended())) {
      EXPECT_NE(lease.end_reason, EndReason::none);
      EXPECT_TRUE(std::any_of(plan.reasons.begin(), plan.reasons.end(),
                              [&lease](const Reason& r) { return r.lease == lease.id && code(r) == "ended"; }));
      for (const std::string& uuid : lease.devices)
        if (lease.had_process && state.charge(lease.id, uuid).settling) unsettled_.insert({lease.id, uuid});
      unheld_.erase(lease.id);
      // Who ends while it is parked was proven to hold no more than what was last measured.
      const bool in_this_step = std::any_of(plan.reasons.begin(), plan.reasons.end(), [&lease](const Reason& r) {
        return r.lease == lease.id && r.kind == ReasonKind::paused;
      });
      for (const std::string& uuid : lease.devices)
        if (old != store_.end() && (old->second.parked() || in_this_step)) measured_[{lease.id, uuid}].after_end = true;
    }
    // An offer that lapsed starts anew, also when the same bytes are offered again in the same step.
    if (old != store_.end() && !lease.ended() && lease.lapsed_offers != old->second.lapsed_offers)
      forget_measured(lease.id);
    store_[lease.id] = lease;
  }
  for (auto at = store_.begin(); at != store_.end();) {
    const bool listed = std::find(plan.settled.begin(), plan.settled.end(), at->first) != plan.settled.end();
    EXPECT_TRUE(!listed || at->second.had_process);
    if (!listed && !(at->second.ended() && !at->second.had_process)) {
      ++at;
      continue;
    }
    EXPECT_TRUE(at->second.ended());
    closed_.insert(at->first);
    forget_measured(at->first);
    at = store_.erase(at);
  }
}

// What each lease uses, from what the snapshot lists, where the core believed it.
void Oracle::follow_snapshot(const State& state, const Snapshot& snapshot) {
  if (snapshot.began < newest_) return;  // overtaken
  newest_ = snapshot.began;
  for (const DeviceReading& reading : snapshot.devices) {
    const auto device = state.devices().find(reading.uuid);
    if (device == state.devices().end() || !device->second.problem.empty()) continue;
    if (device->second.read_at != snapshot.began) continue;
    for (auto& [id, lease] : store_) {
      if (!booked(lease, reading.uuid)) continue;
      Measured& measured = measured_[{id, reading.uuid}];
      measured.used = {};
      measured.untold = false;
      for (const ProcessUse& use : reading.processes) {
        if (use.lease != id) continue;
        measured.used += use.used.value_or(Bytes{});
        measured.untold |= !use.used;
      }
      if (lease.ended() && may_not_grow(lease, snapshot.began) && !measured.untold) measured.after_end = true;
      if (measured.after_end && measured.used == Bytes{} && !measured.untold) unsettled_.erase({id, reading.uuid});
    }
  }
  // A device that was given up charges nobody.
  for (const auto& entry : std::set(unsettled_)) {
    const auto device = state.devices().find(entry.second);
    if (device == state.devices().end() || (device->second.lost && device->second.leases.empty()))
      unsettled_.erase(entry);
  }
}

// Of one that has ended: a reading that was begun then shows the most that it will ever hold.
bool Oracle::may_not_grow(const Lease& lease, Time began) const {
  const bool in_its_grace = lease.stop_requested && !lease.devices.empty() && lease.owner.keeper &&
                            lease.owner.kind == OwnerKind::process && !killed_.contains(lease.id) &&
                            !ended_programs_.contains(lease.id);
  const auto gone = gone_.find(lease.id);
  return !in_its_grace && began >= *lease.ended_at && (gone == gone_.end() || began >= gone->second);
}

void Oracle::follow_ends(const Fact& fact, const Plan& plan, Time now) {
  const auto* ended = std::get_if<ProgramEnded>(&fact);
  const auto* failed = std::get_if<ProgramFailed>(&fact);
  for (const LeaseId id : {ended == nullptr ? LeaseId{} : ended->lease, failed == nullptr ? LeaseId{} : failed->lease})
    if (id && plan.outcome.has_value() && ended_programs_.insert(id).second) gone_.insert_or_assign(id, now);
  for (const Action& action : plan.actions)
    if (const auto* signal = std::get_if<SignalProgram>(&action); signal != nullptr && signal->kill)
      killed_.insert(signal->lease), gone_.insert_or_assign(signal->lease, now);
  const auto* attach = std::get_if<Attach>(&fact);
  if (attach != nullptr && attach->as_owner && plan.outcome.has_value()) ended_programs_.erase(attach->lease);
}

void Oracle::follow_owner(const Fact& fact, const Plan& plan, Time now) {
  if (!plan.outcome.has_value()) return;
  if (const auto* submit = std::get_if<Submit>(&fact)) {
    if (submit->held) held_.insert(*plan.outcome);
    if (!submit->held && submit->lease.owner.kind == OwnerKind::connection) unheld_[*plan.outcome] = now;
  } else if (const auto* changed = std::get_if<HeldChanged>(&fact)) {
    const auto lease = store_.find(changed->lease);
    if (lease == store_.end() || lease->second.ended()) return;
    changed->held ? void(held_.insert(changed->lease)) : void(held_.erase(changed->lease));
    if (lease->second.owner.kind != OwnerKind::connection) return;
    changed->held ? void(unheld_.erase(changed->lease)) : void(unheld_.emplace(changed->lease, now));
  } else if (const auto* attach = std::get_if<Attach>(&fact)) {
    if (attach->as_owner) unheld_.erase(attach->lease);
  }
}

// Who is given its room back is charged with all that its processes will hold then: what they yielded, which may be all
// of its lease, and what they took since.
void Oracle::follow_returns(const State& state, const Plan& plan) {
  std::erase_if(coming_, [this](const auto& entry) { return !store_.contains(entry.first.first); });
  for (const auto& [id, lease] : store_)
    for (const std::string& uuid : lease.devices) {
      const Charge& charge = state.charge(id, uuid);
      coming_[{id, uuid}] = std::max(charge.coming, lease.parked() ? Bytes{} : charge.shrunk_from);
      needed_[{id, uuid}] = state.charge(id, uuid).needed;
    }
  for (const Lease& lease : plan.changed) {
    const auto old = leases_before_.find(lease.id);
    const LeaseState before = old == leases_before_.end() ? LeaseState::queued : old->second.state;
    for (const std::string& uuid : lease.devices) follow_return(lease, before, uuid);
  }
  // Over restarts too: what it held when it was asked is stored.
  for (const auto& [id, lease] : store_) {
    if (lease.state != LeaseState::pausing && lease.state != LeaseState::resuming) continue;
    for (const std::string& uuid : lease.devices) {
      const Bytes whole = back_[{id, uuid}], coming = coming_[{id, uuid}];
      EXPECT_TRUE(whole <= lease.vram || coming >= whole)
          << to_string(id) << " comes back with " << format_size(whole) << " into " << format_size(coming);
      const bool put_away = lease.parking->told;  // the driver has of it only what it took while it was paused
      const Bytes asked = put_away ? Bytes{} : std::min(asked_[{id, uuid}], lease.vram);
      EXPECT_GE(state.to_restore(lease, uuid).all, asked) << to_string(id);
    }
  }
}

void Oracle::follow_return(const Lease& lease, LeaseState before, const std::string& uuid) {
  const auto key = std::pair(lease.id, uuid);
  const auto measured = measured_.find(key);
  const Bytes used = measured == measured_.end() ? Bytes{} : measured->second.used;
  if (lease.state == LeaseState::pausing && before != LeaseState::pausing) {
    if (before != LeaseState::resuming) asked_[key] = {};  // else the next method: what the last one had parked is back
    back_[key] = asked_[key] = std::max(asked_[key], used);
  }
  if (lease.state != LeaseState::resuming || before != LeaseState::paused) return;
  const Bytes since = used > lease.parking->residue ? used - lease.parking->residue : Bytes{};
  back_[key] = std::max(lease.vram, asked_[key]) + since;
}

}  // namespace sublet::core::testing
