// SPDX-License-Identifier: Apache-2.0
// The leases, and what is charged for them.
#include "state/leases.h"

#include "base/mutants.h"
#include "state/methods.h"
#include "state/state.h"
#include "state/tenant_rights.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace sublet::core {
namespace {

constexpr std::size_t growths_kept = 64;  // of a lease that was given more again and again

Bytes charged_for(const Lease& lease, const Charge& charge) {
  const bool paused = lease.state == LeaseState::paused;
  const Bytes coming = paused ? Bytes{} : charge.coming;
  const Bytes shrunk_from = lease.parked() ? Bytes{} : charge.shrunk_from;
  if (lease.reserves() || (charge.settling && !charge.measured))
    return std::max({lease.reserved_each(), charge.used, coming, shrunk_from});
  return charge.settling ? charge.used : Bytes{};
}

}  // namespace

static void include_on_device(State& state, Device& device, const Lease& lease, const Charge& charge, int sign);

const Lease* find(const State& state, LeaseId id) {
  const auto found = state.leases.by_id.find(id);
  return found == state.leases.by_id.end() ? nullptr : &found->second;
}

const Lease* find_tag(const State& state, std::uint32_t uid, std::string_view tag) {
  const auto found = state.leases.tags.find({uid, std::string(tag)});
  return found == state.leases.tags.end() ? nullptr : find(state, found->second);
}

const Charge& charge_on(const State& state, LeaseId id, std::string_view device) {
  static const Charge none;
  const auto runtime = state.leases.runtime.find(id);
  const auto lease = state.leases.by_id.find(id);
  if (runtime == state.leases.runtime.end() || lease == state.leases.by_id.end()) return none;
  const std::vector<Charge>& charges = runtime->second.charges;
  const std::vector<std::string>& devices = lease->second.devices;
  for (std::size_t i = 0; i < charges.size(); ++i)
    if (devices[i] == device) return charges[i];
  return none;
}

Use use_of(const State& state, LeaseId id) {
  Use use;
  const auto runtime = state.leases.runtime.find(id);
  if (runtime == state.leases.runtime.end()) return use;
  for (const Charge& charge : runtime->second.charges) {
    use.used += charge.used;
    use.untold |= charge.untold;
    use.settling |= charge.settling;
  }
  return use;
}

Bytes charged_on(const State& state, const Lease& lease, std::string_view device) {
  return charged_for(lease, charge_on(state, lease.id, device));
}

Bytes need_on(const State& state, const Lease& lease, std::string_view device) {
  if (!lease.waits_in_place()) return lease.least();
  const Bytes whole = lease.parking ? charge_on(state, lease.id, device).needed : Bytes{};
  return std::max(std::max(lease.wanted_vram(), whole) - charged_on(state, lease, device), Bytes{});
}

Lease& add_lease(State& state, Lease lease) {
  const LeaseId id = lease.id;
  const auto [at, fresh] = state.leases.by_id.emplace(id, std::move(lease));
  assert(fresh && "an id is used once");
  LeaseRuntime& runtime = state.leases.runtime.emplace(id, LeaseRuntime{}).first->second;
  runtime.account = open_account(state, at->second.tenant, at->second.user, at->second.uid);
  if (at->second.ended()) return at->second;
  count_present(state, id, 1);
  ++state.leases.live_of[at->second.uid];
  if (!at->second.tag.empty()) state.leases.tags[{at->second.uid, at->second.tag}] = id;
  return at->second;
}

void drop_lease(State& state, LeaseId id) {
  const auto lease = state.leases.by_id.find(id);
  const auto runtime = state.leases.runtime.find(id);
  assert(lease != state.leases.by_id.end() && runtime != state.leases.runtime.end());
  if (runtime->second.due != Time::never()) state.leases.timers.erase({runtime->second.due, id});
  if (!lease->second.ended()) retire_lease(state, lease->second);
  if (state.queue.contains(id)) state.queue.erase(id);
  state.pauses.away.erase(id);
  state.pauses.pausing.erase(id);
  state.pauses.verifying.erase(id);
  state.preemption.reclaimable.erase(id);
  state.preemption.requested.erase(id);  // the number of one that was refused is given again
  // A lease that was ended for a preemptor may go before the next choice of victims.
  for (PreemptionPlan& plan : state.preemption.plans) {
    std::erase_if(plan.victims, [id](const Victim& of) { return of.lease == id; });
    if (plan.beneficiaries.size() > 1) std::erase(plan.beneficiaries, id);
    else if (plan.has(id)) std::ranges::copy(plan.devices, std::back_inserter(state.devices.opened));
  }
  std::erase_if(state.preemption.plans, [id](const PreemptionPlan& plan) { return plan.has(id); });
  for (auto& [device, slice] : state.preemption.slices) std::erase(slice.enters, id), std::erase(slice.leaves, id);
  state.leases.runtime.erase(runtime);
  state.leases.by_id.erase(lease);
}

void retire_lease(State& state, const Lease& lease) {
  count_present(state, lease.id, -1);
  const auto live = state.leases.live_of.find(lease.uid);
  assert(live != state.leases.live_of.end());
  if (--live->second == 0) state.leases.live_of.erase(live);
  const auto tag = state.leases.tags.find({lease.uid, lease.tag});
  if (tag != state.leases.tags.end() && tag->second == lease.id) state.leases.tags.erase(tag);
}

void charge_to(State& state, Lease& lease, const Charged& who) {
  enter(state, lease, -1);
  retire_lease(state, lease);
  lease.uid = who.uid;
  lease.user = who.user;
  lease.tenant = who.tenant;
  state.leases.runtime.at(lease.id).account = open_account(state, who.tenant, who.user, who.uid);
  count_present(state, lease.id, 1);
  ++state.leases.live_of[lease.uid];
  if (!lease.tag.empty()) state.leases.tags[{lease.uid, lease.tag}] = lease.id;
  enter(state, lease, 1);
}

Charge* charge_at(State& state, const Lease& lease, std::string_view device) {
  std::vector<Charge>& charges = state.leases.runtime.at(lease.id).charges;
  for (std::size_t i = 0; i < charges.size(); ++i)
    if (lease.devices[i] == device) return &charges[i];
  return nullptr;
}

// Adds (`sign` 1) or takes away (−1) what the lease counts for in the sums and indices of one of its devices.
void include(State& state, Device& device, const Lease& lease, const Charge& charge, int sign) {
  charge_tenant(state, lease, device, charged_for(lease, charge), sign);
  include_on_device(state, device, lease, charge, sign);
}

static void include_on_device(State& state, Device& device, const Lease& lease, const Charge& charge, int sign) {
  const Bytes bytes = charged_for(lease, charge);
  device.charged += sign * bytes;
  if (charge.shrunk_from > Bytes{}) {
    Charge measured = charge;
    measured.shrunk_from = {};
    device.shrinking += sign * (bytes - charged_for(lease, measured));
  }
  device.leased_used += sign * charge.used;
  device.kept_unseen += sign * std::max(lease.kept_unseen() - charge.used, Bytes{});
  if (charge.settling) device.settling += sign * bytes;
  if (lease.state == LeaseState::pausing) device.pausing += sign;
  if (lease.state == LeaseState::pausing) device.residues_to_come += sign * lease.parking->residue;
  if (lease.parked()) device.parked += sign, device.residues += sign * lease.parking->residue;
  if (core::might_yield(lease)) {
    const auto tier = static_cast<std::size_t>(lease.tier);
    Device::Claimable& claimable = device.might_yield[tier];
    claimable.leases += sign;
    claimable.charged += sign * bytes;
    if (claimable.leases == 0) state.devices.with_victims[tier].erase(device.reading.uuid);
    else if (sign > 0 && claimable.leases == 1) state.devices.with_victims[tier].insert(device.reading.uuid);
  }
  if (sign > 0) {
    device.leases.insert(lease.id);
    device.by_charge.insert({bytes, lease.id});
  } else {
    device.leases.erase(lease.id);
    device.by_charge.erase({bytes, lease.id});
  }
  refresh_other(state, device);
}

void book(State& state, Lease& lease) {
  std::vector<Charge>& charges = state.leases.runtime.at(lease.id).charges;
  charges.resize(lease.devices.size());
  for (std::size_t i = 0; i < charges.size(); ++i) {
    assert(lease.reserves() || charges[i].settling);
    include(state, device_entry(state, lease.devices[i]), lease, charges[i], 1);
  }
}

void unbook(State& state, const Lease& lease) {
  for (const std::string& uuid : lease.devices) {
    Device& device = state.devices.by_uuid.at(uuid);
    if (device.leases.contains(lease.id)) unbook(state, lease, device);
  }
}

void unbook(State& state, const Lease& lease, Device& device) {
  Charge& charge = *charge_at(state, lease, device.reading.uuid);
  device.unleased += charge.used;
  include(state, device, lease, charge, -1);
  charge = {};
}

// Called while the lease is booked and before its state says `ended`, so that what is taken out is what was
// put in.
void settle(State& state, LeaseId id, bool measured) {
  Lease& lease = state.leases.by_id.at(id);
  rebook(state, lease, [&] {
    lease.state = LeaseState::ended;
    for (const std::string& uuid : lease.devices) {
      Charge& charge = *charge_at(state, lease, uuid);
      charge.settling = true;
      charge.measured = measured;
    }
  });
}

// `seen`: what the device's reading says of the lease; whether it settles is not the reading's to say.
void measure(State& state, const Lease& lease, Device& device, const Charge& seen, bool after_end) {
  Charge& charge = *charge_at(state, lease, device.reading.uuid);
  charge.processes = seen.processes;
  const bool measured = charge.measured || (charge.settling && after_end && !seen.untold);
  LeaseRuntime& runtime = state.leases.runtime.at(lease.id);
  const bool rests = !lease.parking || lease.state == LeaseState::poisoned;  // nothing more comes to its devices
  const bool back = !charge.settling && rests && charge.coming > Bytes{} && device.read_at >= runtime.restored_at;
  const bool shrunk = charge.shrunk_from > Bytes{} && device.read_at >= runtime.shrunk_at;
  const bool same = charge.used == seen.used && charge.untold == seen.untold && charge.measured == measured;
  if (same && !back && !shrunk) return;
  const Bytes before = charged_for(lease, charge);
  include_on_device(state, device, lease, charge, -1);
  if (back) charge.coming = {};
  if (shrunk) charge.shrunk_from = {};
  if (seen.used < charge.used || (charge.untold && !seen.untold)) runtime.used_until = device.read_at.value_or(Time{});
  charge.used = seen.used;
  charge.untold = seen.untold;
  charge.measured = measured;
  include_on_device(state, device, lease, charge, 1);
  const Bytes after = charged_for(lease, charge);
  if (after == before) return;  // most readings change no sum of a tenant
  charge_tenant(state, lease, device, before, -1);
  charge_tenant(state, lease, device, after, 1);
}

void set_owner(State& state, Lease& lease, Owner owner) {
  rebook(state, lease, [&] {
    if (owner.process != lease.owner.process) {  // another program
      lease.unfit.reset();
      state.leases.runtime.at(lease.id).seemed_unfit = false;
      state.leases.runtime.at(lease.id).obstacle.reset();
    }
    lease.owner = std::move(owner);
  });
}

void requeue_in_place(State& state, const Lease& lease) {
  if (state.queue.contains(lease.id)) state.queue.erase(lease.id);
  if (!lease.waits_in_place()) return;
  if (lease.parking) expect_return(state, lease);
  Bytes most;
  for (const std::string& uuid : lease.devices) most = std::max(most, need_on(state, lease, uuid));
  state.queue.insert_in_place(lease, most, place_by_tenant(state, lease));
  state.devices.opened.push_back(lease.devices.front());
}

// The earliest point at which time alone changes this lease.
Time deadline_of(const State& state, const Lease& lease, const LeaseRuntime& runtime, const Rules& rules) {
  Time due = Time::never();
  if (!lease.ended()) {
    if (lease.owner.kind == OwnerKind::connection && lease.unheld_since)
      due = std::min(due, std::max(after(*lease.unheld_since, rules.linger), runtime.grace_until));
    if (lease.state == LeaseState::offered && lease.offer_ends_at && !mutant(Mutant::offers_last))
      due = std::min(due, *lease.offer_ends_at);
    if (lease.state == LeaseState::active && lease.expires_at) due = std::min(due, *lease.expires_at);
    if (runtime.attempt) due = std::min({due, runtime.attempt->look_at, runtime.attempt->overdue_at});
    if (is_away(state, lease) && lease.parking->orphaned_since)
      due = std::min(due, after(*lease.parking->orphaned_since, rules.orphan_after));
  }
  if (lease.kept_until) due = std::min(due, *lease.kept_until);
  if (lease.stop_requested && lease.stop_at && !runtime.killed && !runtime.program_ended)
    due = std::min(due, after(*lease.stop_at, stop_grace(lease, rules)));
  return due;
}

// An owner that could not reach the daemon gets rules.reconnect from `now`. True if the lease itself changed by that.
bool forgive(State& state, Lease& lease, const Rules& rules, Time now) {
  const Time back_by = after(now, rules.reconnect);
  if (LeaseRuntime& runtime = state.leases.runtime.at(lease.id); !runtime.held) runtime.grace_until = back_by;
  const auto before = std::pair(lease.expires_at, lease.offer_ends_at);
  if (lease.expires_at && !lease.parking) lease.expires_at = std::max(*lease.expires_at, back_by);
  if (lease.state == LeaseState::offered)
    lease.offer_ends_at = after(now, std::max(rules.claim_window, rules.reconnect));
  return before != std::pair(lease.expires_at, lease.offer_ends_at);
}

void schedule(State& state, const Lease& lease, const Rules& rules) {
  LeaseRuntime& runtime = state.leases.runtime.at(lease.id);
  const Time due = deadline_of(state, lease, runtime, rules);
  if (due == runtime.due) return;
  if (runtime.due != Time::never()) state.leases.timers.erase({runtime.due, lease.id});
  if (due != Time::never()) state.leases.timers.insert({due, lease.id});
  runtime.due = due;
}

Bytes given_since(const State& state, const Lease& lease, std::string_view device, Time since) {
  if (lease.ended()) return {};
  const LeaseRuntime& runtime = state.leases.runtime.at(lease.id);
  const Time whole_at = std::max(lease.granted_at.value_or(Time{}), runtime.back_at);
  if (whole_at > since) return charged_on(state, lease, device);
  Bytes grown;
  for (const auto& [at, bytes] : runtime.grown)
    if (at > since) grown += bytes;
  return std::min(grown, charged_on(state, lease, device));
}

void resize(State& state, Lease& lease, Bytes vram, Time now) {
  LeaseRuntime& runtime = state.leases.runtime.at(lease.id);
  auto& grown = runtime.grown;
  if (vram > lease.vram) grown.emplace_back(now, vram - lease.vram);
  if (grown.size() > growths_kept) {  // the oldest counts as given later than it was: never as less than it is
    grown[1].second += grown[0].second;
    grown.erase(grown.begin());
  }
  for (Bytes less = lease.vram - vram; less > Bytes{} && !grown.empty();) {
    const Bytes taken = std::min(less, grown.back().second);
    less -= taken;
    if ((grown.back().second -= taken) <= Bytes{}) grown.pop_back();
  }
  const Bytes before = lease.vram;
  rebook(state, lease, [&] {
    lease.vram = vram;
    if (vram >= before) return;
    runtime.shrunk_at = now;
    for (Charge& charge : runtime.charges) charge.shrunk_from = std::max(charge.shrunk_from, before);
  });
}

// After a clock gap the daemon has yet to hear and to read what programs did.
void stand_still(State& state, const Lease& lease, Duration stood_still) {
  LeaseRuntime& runtime = state.leases.runtime.at(lease.id);
  const Time granted = lease.granted_at.value_or(Time{});
  runtime.used_until = after(std::max({runtime.used_until, granted, runtime.restored_at}), stood_still);
  runtime.silent_since = after(std::max(runtime.silent_since, granted), stood_still);
  if (runtime.attempt) runtime.attempt->told_since = after(runtime.attempt->told_since, stood_still);
}

// Whatever runs out goes on where it stood when the machine fell asleep. When it was asked for, granted, or queued
// remains what it was. True if the lease itself changed by that.
bool sleep_through(State& state, Lease& lease, Duration asleep) {
  const auto move = [asleep](auto& time) {
    if (time) time = after(*time, asleep);
    return time.has_value();
  };
  LeaseRuntime& runtime = state.leases.runtime.at(lease.id);
  runtime.settled_in = after(standing_of(state, lease.id).came_back, asleep);
  runtime.grace_until = after(runtime.grace_until, asleep);
  stand_still(state, lease, asleep);
  runtime.restored_at = after(runtime.restored_at, asleep);
  if (runtime.attempt) {
    Attempt& its = *runtime.attempt;
    for (Time* time :
         {&its.look_at, &its.overdue_at, &its.ordered_at, &its.proven_at, &its.moving_since, &its.answered_at})
      *time = after(*time, asleep);
    move(its.late_since);
    move(its.held_at);
  }
  move(lease.unheld_since);
  bool changed = move(lease.stop_at);
  if (lease.ended()) return changed;
  changed |= move(lease.offer_ends_at);
  if (!lease.parking) changed |= move(lease.expires_at);  // the time of a paused lease stands still anyhow
  if (lease.parking) changed |= move(lease.parking->orphaned_since);
  return changed;
}

Bytes beyond_size(const State& state, const Lease& lease) {
  Bytes most;
  if (lease.state != LeaseState::paused) return most;
  for (const std::string& uuid : lease.devices)
    most = std::max(most, charge_on(state, lease.id, uuid).needed - lease.vram);
  return most;
}

void set_cooperation(State& state, Lease& lease, std::optional<Cooperation> how, Time now) {
  if (!how) state.leases.runtime.at(lease.id).silent_since = now;
  rebook(state, lease, [&] { lease.cooperation = std::move(how); });
}

bool is_measured_later(const State& state, LeaseId id) {
  const auto runtime = state.leases.runtime.find(id);
  return runtime != state.leases.runtime.end() &&
         std::ranges::any_of(runtime->second.charges, [](const Charge& its) { return its.coming > Bytes{}; });
}

bool is_held(const State& state, LeaseId id) {
  const auto found = state.leases.runtime.find(id);
  return found != state.leases.runtime.end() && found->second.held;
}

}  // namespace sublet::core
