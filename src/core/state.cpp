// SPDX-License-Identifier: Apache-2.0
#include "core/state.h"

#include "base/mutants.h"
#include "core/methods.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <numeric>

namespace sublet::core {
namespace {

Bytes charged_for(const Lease& lease, const Charge& charge) {
  const bool paused = lease.state == LeaseState::paused;
  const Bytes coming = paused ? Bytes{} : charge.coming;
  const Bytes shrunk_from = lease.parked() ? Bytes{} : charge.shrunk_from;
  if (lease.reserves() || (charge.settling && !charge.measured))
    return std::max({lease.reserved_each(), charge.used, coming, shrunk_from});
  return charge.settling ? charge.used : Bytes{};
}

}  // namespace

// -------------------------------------------------------------------------------- reading

const Lease* State::find(LeaseId id) const {
  const auto found = leases_.find(id);
  return found == leases_.end() ? nullptr : &found->second;
}

const Lease* State::find_tag(std::uint32_t uid, std::string_view tag) const {
  const auto found = tags_.find({uid, std::string(tag)});
  return found == tags_.end() ? nullptr : find(found->second);
}

const Device* State::find_device(std::string_view name) const {
  if (name.empty()) return nullptr;
  const auto exact = devices_.find(name);
  if (exact != devices_.end()) return &exact->second;
  if (name.substr(0, 3) == "gpu") name.remove_prefix(3);
  const Device* lost = nullptr;  // the driver may have given its index to another since
  for (const auto& [uuid, device] : devices_) {
    if (!device.read_at || std::to_string(device.reading.index) != name) continue;
    if (!device.lost) return &device;
    lost = &device;
  }
  return lost;
}

const ConsumerHistory* State::history(const Consumer& consumer) const {
  const auto found = history_.find(consumer);
  return found == history_.end() ? nullptr : &found->second.first;
}

const Charge& State::charge(LeaseId id, std::string_view device) const {
  static const Charge none;
  const auto runtime = runtime_.find(id);
  const auto lease = leases_.find(id);
  if (runtime == runtime_.end() || lease == leases_.end()) return none;
  const std::vector<Charge>& charges = runtime->second.charges;
  const std::vector<std::string>& devices = lease->second.devices;
  for (std::size_t i = 0; i < charges.size(); ++i)
    if (devices[i] == device) return charges[i];
  return none;
}

Use State::use(LeaseId id) const {
  Use use;
  const auto runtime = runtime_.find(id);
  if (runtime == runtime_.end()) return use;
  for (const Charge& charge : runtime->second.charges) {
    use.used += charge.used;
    use.untold |= charge.untold;
    use.settling |= charge.settling;
  }
  return use;
}

bool State::known(const Device& device, const Rules& rules, Time now) const {
  return device.read_at && device.problem.empty() && !device.lost &&
         (now - *device.read_at <= rules.max_age || mutant(Mutant::old_readings_count));
}

bool State::given_up(const Device& device, const Rules& rules, Time now) {
  constexpr int missing_snapshots = 3;
  return device.missing >= missing_snapshots && now - *device.missing_since >= rules.max_age;
}

const Device* State::given_up(const Lease& lease, const Rules& rules, Time now) const {
  for (const std::string& uuid : lease.devices)
    if (const auto at = devices_.find(uuid); at != devices_.end() && given_up(at->second, rules, now))
      return &at->second;
  return nullptr;
}

Bytes State::capacity(const Device& device, const Rules& rules) {
  return device.reading.total - device.reading.driver_reserved - rules.headroom;
}

Bytes State::effective_free(const Device& device, const Rules& rules, Time now) const {
  return known(device, rules, now) ? unclaimed(device, rules) : Bytes{};
}

Bytes State::unclaimed(const Device& device, const Rules& rules) {
  const Bytes other = mutant(Mutant::others_do_not_count) ? Bytes{} : device.other;
  const Bytes kept = std::min(rules.headroom, device.residues);
  return capacity(device, rules) - device.charged - other + kept;
}

Bytes State::charged(const Lease& lease, std::string_view device) const {
  return charged_for(lease, charge(lease.id, device));
}

Bytes State::need(const Lease& lease, std::string_view device) const {
  if (!lease.waits_in_place()) return lease.least();
  const Bytes whole = lease.parking ? charge(lease.id, device).needed : Bytes{};
  return std::max(std::max(lease.wanted_vram(), whole) - charged(lease, device), Bytes{});
}

const Device* State::capacity_for(int count) const {
  if (count < 1 || static_cast<std::size_t>(count) > capacities_.size()) return nullptr;
  return &devices_.at(std::next(capacities_.rbegin(), count - 1)->second);
}

Standing State::standing(LeaseId id) const {
  const auto lease = leases_.find(id);
  const auto found = runtime_.find(id);
  if (lease == leases_.end() || found == runtime_.end()) return {};
  const LeaseRuntime& runtime = found->second;
  const Lease& its = lease->second;
  const Time given_at = its.preemption_request ? its.preemption_request->given_at.value_or(Time{}) : Time{};
  const Time came_back = std::max({runtime.restored_at, its.granted_at.value_or(Time{}), given_at, runtime.settled_in});
  return {runtime.restored_at, came_back,    runtime.used_until, runtime.tried_at,    runtime.ineligible_until,
          runtime.failures,    runtime.next, runtime.parked,     runtime.silent_since};
}

const LeftAlone& State::left_alone(LeaseId id) const {
  static const LeftAlone none;
  const auto found = runtime_.find(id);
  return found == runtime_.end() ? none : found->second.left_alone;
}

const Barred* State::barred(LeaseId id, PauseMethod method, Time now) const {
  const auto holds = [&](const std::optional<Barred>& bar) {
    return bar && now < bar->until && (bar->by == Hindrance::swap || method == PauseMethod::driver);
  };
  const auto found = runtime_.find(id);
  if (found != runtime_.end() && holds(found->second.barred)) return &*found->second.barred;
  // A spot lease is ended for this obstacle, so that the result for another lease does not count: it is asked itself
  // first.
  const Lease* lease = find(id);
  const bool may_be_ended = lease != nullptr && lease->tier == Tier::spot;
  return !may_be_ended && holds(driver_barred_) ? &*driver_barred_ : nullptr;
}

const PreemptionPlan* State::plan_on(std::string_view device) const {
  for (const PreemptionPlan& plan : plans_)
    if (std::find(plan.devices.begin(), plan.devices.end(), device) != plan.devices.end()) return &plan;
  return nullptr;
}

const PreemptionPlan* State::plan_for(LeaseId preemptor) const {
  const auto found = std::find_if(plans_.begin(), plans_.end(),
                                  [preemptor](const PreemptionPlan& plan) { return plan.preemptor == preemptor; });
  return found == plans_.end() ? nullptr : &*found;
}

std::optional<PreemptionRequest> State::preemption_request(LeaseId waiter) const {
  const Lease* lease = find(waiter);
  return lease == nullptr || !requested_.contains(waiter) ? std::nullopt : lease->preemption_request;
}

bool State::somebody_might_yield(Tier tier) const {
  return std::any_of(where_.begin(), where_.begin() + static_cast<int>(tier) + 1,
                     [](const auto& devices) { return !devices.empty(); });
}

// -------------------------------------------------------------------------------- changing

Lease& State::add(Lease lease) {
  const LeaseId id = lease.id;
  const auto [at, fresh] = leases_.emplace(id, std::move(lease));
  assert(fresh && "an id is used once");
  runtime_.emplace(id, LeaseRuntime{});
  if (at->second.ended()) return at->second;
  ++live_of_[at->second.uid];
  if (!at->second.tag.empty()) tags_[{at->second.uid, at->second.tag}] = id;
  return at->second;
}

void State::drop(LeaseId id) {
  const auto lease = leases_.find(id);
  const auto runtime = runtime_.find(id);
  assert(lease != leases_.end() && runtime != runtime_.end());
  if (runtime->second.due != Time::never()) timers_.erase({runtime->second.due, id});
  if (!lease->second.ended()) retire(lease->second);
  if (queue_.contains(id)) queue_.erase(id);
  away_.erase(id);
  verifying_.erase(id);
  std::erase_if(said_, [id](const auto& its) { return its.first.first == id; });
  requested_.erase(id);  // the number of one that was refused is given again
  // A lease that was ended for a preemptor may go before the next choice of victims.
  for (PreemptionPlan& plan : plans_) {
    std::erase_if(plan.victims, [id](const Victim& of) { return of.lease == id; });
    std::erase(plan.beneficiaries, id);
  }
  for (auto& [device, slice] : slices_) std::erase(slice.enters, id), std::erase(slice.leaves, id);
  runtime_.erase(runtime);
  leases_.erase(lease);
}

void State::retire(const Lease& lease) {
  const auto live = live_of_.find(lease.uid);
  assert(live != live_of_.end());
  if (--live->second == 0) live_of_.erase(live);
  const auto tag = tags_.find({lease.uid, lease.tag});
  if (tag != tags_.end() && tag->second == lease.id) tags_.erase(tag);
}

void State::charge_to(Lease& lease, const Charged& who) {
  enter(lease, -1);
  retire(lease);
  lease.uid = who.uid;
  lease.user = who.user;
  lease.tenant = who.tenant;
  ++live_of_[lease.uid];
  if (!lease.tag.empty()) tags_[{lease.uid, lease.tag}] = lease.id;
  enter(lease, 1);
}

Device& State::device_entry(const std::string& uuid) {
  const auto [at, fresh] = devices_.try_emplace(uuid);
  if (fresh) {
    at->second.number = ++last_number_;
    at->second.reading.uuid = uuid;
    at->second.problem = "not read yet";
  }
  return at->second;
}

void State::forget(const std::string& uuid) {
  const auto at = devices_.find(uuid);
  assert(at != devices_.end() && at->second.leases.empty());
  const Device::Indexed& indexed = at->second.indexed;
  if (indexed.room) rooms_.erase(*indexed.room);
  if (indexed.age) ages_.erase({*indexed.age, uuid});
  if (indexed.capacity) capacities_.erase({*indexed.capacity, uuid});
  devices_.erase(at);
}

Charge* State::charge_at(const Lease& lease, std::string_view device) {
  std::vector<Charge>& charges = runtime_.at(lease.id).charges;
  for (std::size_t i = 0; i < charges.size(); ++i)
    if (lease.devices[i] == device) return &charges[i];
  return nullptr;
}

// Adds (`sign` 1) or takes away (−1) what the lease counts for in the sums and indices of one of its devices.
void State::include(Device& device, const Lease& lease, const Charge& charge, int sign) {
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
  if (lease.reserves() && core::might_yield(lease)) {
    const auto tier = static_cast<std::size_t>(lease.tier);
    Device::Claimable& claimable = device.might_yield[tier];
    claimable.leases += sign;
    claimable.charged += sign * bytes;
    if (claimable.leases == 0) where_[tier].erase(device.reading.uuid);
    else if (sign > 0 && claimable.leases == 1) where_[tier].insert(device.reading.uuid);
  }
  if (sign > 0) {
    device.leases.insert(lease.id);
    device.by_charge.insert({bytes, lease.id});
  } else {
    device.leases.erase(lease.id);
    device.by_charge.erase({bytes, lease.id});
  }
  refresh_other(device);
}

void State::refresh_other(Device& device) {
  const Bytes seen = device.leased_used + device.kept_unseen + device.arrived;
  device.other = std::max({device.unleased, device.reading.used - seen, Bytes{}});
  moved(device);
}

void State::book(Lease& lease) {
  std::vector<Charge>& charges = runtime_.at(lease.id).charges;
  charges.resize(lease.devices.size());
  for (std::size_t i = 0; i < charges.size(); ++i) {
    assert(lease.reserves() || charges[i].settling);
    include(device_entry(lease.devices[i]), lease, charges[i], 1);
  }
}

void State::unbook(const Lease& lease) {
  for (const std::string& uuid : lease.devices) {
    Device& device = devices_.at(uuid);
    if (device.leases.contains(lease.id)) unbook(lease, device);
  }
}

void State::unbook(const Lease& lease, Device& device) {
  Charge& charge = *charge_at(lease, device.reading.uuid);
  device.unleased += charge.used;
  include(device, lease, charge, -1);
  charge = {};
}

// Called while the lease is booked and before its state says `ended`, so that what is taken out is what was
// put in.
void State::settle(LeaseId id, bool measured) {
  Lease& lease = leases_.at(id);
  rebook(lease, [&] {
    lease.state = LeaseState::ended;
    for (const std::string& uuid : lease.devices) {
      Charge& charge = *charge_at(lease, uuid);
      charge.settling = true;
      charge.measured = measured;
    }
  });
}

// `seen`: what the device's reading says of the lease; whether it settles is not the reading's to say.
void State::measure(const Lease& lease, Device& device, const Charge& seen, bool after_end) {
  Charge& charge = *charge_at(lease, device.reading.uuid);
  charge.processes = seen.processes;
  const bool measured = charge.measured || (charge.settling && after_end && !seen.untold);
  LeaseRuntime& runtime = runtime_.at(lease.id);
  const bool rests = !lease.parking || lease.state == LeaseState::poisoned;  // nothing more comes to its devices
  const bool back = !charge.settling && rests && charge.coming > Bytes{} && device.read_at >= runtime.restored_at;
  const bool shrunk = charge.shrunk_from > Bytes{} && device.read_at >= runtime.shrunk_at;
  const bool same = charge.used == seen.used && charge.untold == seen.untold && charge.measured == measured;
  if (same && !back && !shrunk) return;
  include(device, lease, charge, -1);
  if (back) charge.coming = {};
  if (shrunk) charge.shrunk_from = {};
  if (seen.used < charge.used || (charge.untold && !seen.untold)) runtime.used_until = device.read_at.value_or(Time{});
  charge.used = seen.used;
  charge.untold = seen.untold;
  charge.measured = measured;
  include(device, lease, charge, 1);
}

void State::set_owner(Lease& lease, Owner owner) {
  rebook(lease, [&] {
    if (owner.process != lease.owner.process) {  // another program
      lease.unfit.reset();
      runtime_.at(lease.id).seemed_unfit = false;
      runtime_.at(lease.id).barred.reset();
    }
    lease.owner = std::move(owner);
  });
}

void State::requeue_in_place(const Lease& lease) {
  if (queue_.contains(lease.id)) queue_.erase(lease.id);
  if (!lease.waits_in_place()) return;
  if (lease.parking) expect_return(lease);
  Bytes most;
  for (const std::string& uuid : lease.devices) most = std::max(most, need(lease, uuid));
  queue_.insert_in_place(lease, most);
  opened_.push_back(lease.devices.front());
}

// -------------------------------------------------------------------------------- indices over all devices

void State::moved(Device& device) {
  if (!device.indexed.moved) moved_.push_back(device.reading.uuid);
  device.indexed.moved = true;
}

void State::reindex(const Rules& rules, Time now) {
  const std::pair under(rules.headroom, rules.max_age);
  if (indexed_under_ && *indexed_under_ != under)
    for (auto& [uuid, device] : devices_) moved(device);
  indexed_under_ = under;
  for (const auto& [read_at, uuid] : ages_) {
    if (now - read_at <= rules.max_age) break;
    moved(devices_.at(uuid));
  }
  for (const std::string& uuid : moved_)
    if (const auto device = devices_.find(uuid); device != devices_.end()) reindex(device->second, rules, now);
  std::move(moved_.begin(), moved_.end(), std::back_inserter(room_changed_));
  moved_.clear();
}

void State::reindex(Device& device, const Rules& rules, Time now) {
  const std::string& uuid = device.reading.uuid;
  Device::Indexed& indexed = device.indexed;
  indexed.moved = false;
  std::optional<DeviceFree> room;
  std::optional<Time> age;
  if (known(device, rules, now)) {
    room = DeviceFree{effective_free(device, rules, now), device.reading.index, uuid, device.number};
    age = device.read_at;
  }
  if (room && (!indexed.room || room->free > indexed.room->free)) opened_.push_back(uuid);
  if (room != indexed.room) {
    auto node = indexed.room ? rooms_.extract(*indexed.room) : std::set<DeviceFree>::node_type();
    if (room && node) node.value() = *room, rooms_.insert(std::move(node));
    else if (room) rooms_.insert(*room);
    indexed.room = std::move(room);
  }
  if (age != indexed.age) {
    if (indexed.age) ages_.erase({*indexed.age, uuid});
    if (age) ages_.insert({*age, uuid});
    indexed.age = age;
  }
  if (!device.read_at) return;
  const Bytes capacity = device.reading.total - device.reading.driver_reserved;
  if (capacity == indexed.capacity) return;
  if (indexed.capacity) capacities_.erase({*indexed.capacity, uuid});
  capacities_.insert({capacity, uuid});
  indexed.capacity = capacity;
}

// -------------------------------------------------------------------------------- time

// The earliest point at which time alone changes this lease.
Time State::deadline(const Lease& lease, const LeaseRuntime& runtime, const Rules& rules) const {
  Time due = Time::never();
  if (!lease.ended()) {
    if (lease.owner.kind == OwnerKind::connection && lease.unheld_since)
      due = std::min(due, std::max(after(*lease.unheld_since, rules.linger), runtime.grace_until));
    if (lease.state == LeaseState::offered && lease.offer_ends_at && !mutant(Mutant::offers_last))
      due = std::min(due, *lease.offer_ends_at);
    if (lease.state == LeaseState::active && lease.expires_at) due = std::min(due, *lease.expires_at);
    if (lease.state == LeaseState::pausing || lease.state == LeaseState::resuming)
      due = std::min({due, runtime.look_at, runtime.overdue_at});
    if (is_away(lease) && lease.parking->orphaned_since)
      due = std::min(due, after(*lease.parking->orphaned_since, rules.orphan_after));
  }
  if (lease.kept_until) due = std::min(due, *lease.kept_until);
  if (lease.stop_requested && lease.stop_at && !runtime.killed && !runtime.program_ended)
    due = std::min(due, after(*lease.stop_at, stop_grace(lease, rules)));
  return due;
}

// An owner that could not reach the daemon gets rules.reconnect from `now`. True if the lease itself changed by that.
bool State::forgive(Lease& lease, const Rules& rules, Time now) {
  const Time back_by = after(now, rules.reconnect);
  if (LeaseRuntime& runtime = runtime_.at(lease.id); !runtime.held) runtime.grace_until = back_by;
  const auto before = std::pair(lease.expires_at, lease.offer_ends_at);
  if (lease.expires_at) lease.expires_at = std::max(*lease.expires_at, back_by);
  if (lease.state == LeaseState::offered)
    lease.offer_ends_at = after(now, std::max(rules.claim_window, rules.reconnect));
  return before != std::pair(lease.expires_at, lease.offer_ends_at);
}

void State::schedule(const Lease& lease, const Rules& rules) {
  LeaseRuntime& runtime = runtime_.at(lease.id);
  const Time due = deadline(lease, runtime, rules);
  if (due == runtime.due) return;
  if (runtime.due != Time::never()) timers_.erase({runtime.due, lease.id});
  if (due != Time::never()) timers_.insert({due, lease.id});
  runtime.due = due;
}

}  // namespace sublet::core
