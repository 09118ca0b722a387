// SPDX-License-Identifier: Apache-2.0
#include "core/testing/validate.h"

#include "state/methods.h"
#include "state/reconfigured.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

namespace sublet::core::testing {
namespace {

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(Bytes bytes) { return std::to_string(bytes.count) + " bytes"; }
template <typename Integer>
std::string text_of(Integer value) {
  return std::to_string(value);
}

class Validation {
 public:
  Validation(const State& state, const Rules& rules, Time now) : state_(state), rules_(rules), now_(now) {}

  std::vector<std::string> run() {
    for (const auto& [id, lease] : state_.leases.by_id) check_lease(lease);
    for (const auto& [uuid, device] : state_.devices.by_uuid) check_device(device);
    check_ledger();
    check_queue();
    check_free_memory_index();
    for (std::string& wrong : validate_tenants(state_)) wrong_.push_back(std::move(wrong));
    return std::move(wrong_);
  }

 private:
  template <typename Value>
  void expect(const std::string& subject, const char* what, const Value& kept, const Value& recomputed) {
    if (kept == recomputed) return;
    wrong_.push_back(subject + ": " + what + " is " + text_of(kept) + ", recomputed " + text_of(recomputed));
  }

  void check_lease(const Lease& lease);
  void check_device(const Device& device);
  Bytes unleased_on(const Device& device) const;
  void check_ledger();
  void check_queue();
  void check_free_memory_index();
  bool goes_before(const Lease& a, const Lease& b) const;

  const State& state_;
  const Rules& rules_;
  const Time now_;
  std::vector<std::string> wrong_;
};

// The fields of one lease agree with its state, and the lease is in exactly the indices of that state.
void Validation::check_lease(const Lease& lease) {
  const std::string name = to_string(lease.id);
  const bool moves = lease.state == LeaseState::pausing || lease.state == LeaseState::resuming;
  expect(name, "has a parking", lease.parking.has_value(), moves || lease.parked());
  expect(name, "has an attempt", attempt_of(state_, lease.id) != nullptr, moves);
  expect(name, "in the index of paused leases", state_.pauses.away.contains(lease.id), lease.parking.has_value());
  expect(name, "in the index of pausing leases", state_.pauses.pausing.contains(lease.id),
         lease.state == LeaseState::pausing);
  expect(name, "in the queue", state_.queue.contains(lease.id), lease.queues() || lease.waits_in_place());
  if (state_.pauses.verifying.contains(lease.id))
    expect(name, "pausing while its pause is verified", lease.state == LeaseState::pausing, true);

  const std::set<std::string> devices(lease.devices.begin(), lease.devices.end());
  expect(name, "number of distinct devices", devices.size(), lease.devices.size());
  if (lease.reserves()) expect(name, "number of devices", devices.size(), static_cast<std::size_t>(lease.device_count));
  if (lease.reserves() && !lease.wanted_devices.empty())
    for (const std::string& uuid : devices)
      expect(name, "device that it named", std::ranges::count(lease.wanted_devices, uuid), std::ptrdiff_t{1});
  if (lease.state == LeaseState::queued) expect(name, "number of devices", devices.size(), std::size_t{0});
  for (const auto& [uuid, device] : state_.devices.by_uuid) {
    const bool booked = devices.contains(uuid) && (lease.reserves() || charge_on(state_, lease.id, uuid).settling);
    expect(name, "in the index of its device", device.leases.contains(lease.id), booked);
  }
  if (!lease.tag.empty() && !lease.ended())
    expect(name, "found by its tag", find_tag(state_, lease.uid, lease.tag) == &lease, true);
}

// The sums of a device are the sums over the leases that are booked there.
void Validation::check_device(const Device& device) {
  const std::string& uuid = device.reading.uuid;
  Device sum;
  for (const LeaseId id : device.leases) {
    const Lease* lease = find(state_, id);
    if (lease == nullptr) return wrong_.push_back(uuid + ": names " + to_string(id) + ", which is not in the state");
    const Charge& charge = charge_on(state_, id, uuid);
    const Bytes charged = charged_on(state_, *lease, uuid);
    sum.charged += charged;
    sum.leased_used += charge.used;
    if (charge.settling) sum.settling += charged;
    sum.kept_unseen += std::max(lease->kept_unseen() - charge.used, Bytes{});
    sum.pausing += lease->state == LeaseState::pausing;
    if (lease->state == LeaseState::pausing) sum.residues_to_come += lease->parking->residue;
    sum.parked += lease->parked();
    if (lease->parked()) sum.residues += lease->parking->residue;
    if (might_yield(*lease)) {
      Device::Claimable& of_tier = sum.might_yield[static_cast<std::size_t>(lease->tier)];
      ++of_tier.leases;
      of_tier.charged += charged;
    }
    sum.by_charge.insert({charged, id});
    expect(to_string(id), "charged at least what it reserves", !lease->reserves() || charged >= lease->reserved_each(),
           true);
    expect(to_string(id), "charged at least what it uses", charged >= charge.used, true);
  }
  expect(uuid, "charged", device.charged, sum.charged);
  expect(uuid, "leased_used", device.leased_used, sum.leased_used);
  expect(uuid, "settling", device.settling, sum.settling);
  expect(uuid, "kept_unseen", device.kept_unseen, sum.kept_unseen);
  expect(uuid, "pausing", device.pausing, sum.pausing);
  expect(uuid, "parked", device.parked, sum.parked);
  expect(uuid, "residues", device.residues, sum.residues);
  expect(uuid, "residues_to_come", device.residues_to_come, sum.residues_to_come);
  const auto same = [](const ChargedLease& a, const ChargedLease& b) {
    return a.charged == b.charged && a.lease == b.lease;
  };
  expect(uuid, "index of leases by charge is complete", std::ranges::equal(device.by_charge, sum.by_charge, same),
         true);
  expect(uuid, "in the index of unified devices", state_.devices.unified.contains(uuid), device.reading.unified);
  expect(uuid, "in the index of devices with leases that could leave for a paused one",
         state_.devices.with_paused_above.contains(uuid), has_paused_above(state_, device));
  for (std::size_t tier = 0; tier < tier_count; ++tier) {
    expect(uuid, "leases that might yield", device.might_yield[tier].leases, sum.might_yield[tier].leases);
    expect(uuid, "bytes that might be yielded", device.might_yield[tier].charged, sum.might_yield[tier].charged);
    expect(uuid, "in the index of devices where a lease might yield",
           devices_with_victims(state_, static_cast<Tier>(tier)).contains(uuid), sum.might_yield[tier].leases > 0);
  }

  expect(uuid, "arrived is 0 or more", device.arrived >= Bytes{}, true);
  const Bytes seen = sum.leased_used + sum.kept_unseen + device.arrived + untold_on(state_, device);
  const Bytes other = std::max({unleased_on(device), device.reading.used - seen, Bytes{}});
  expect(uuid, "other", device.other, other);
  // No byte is promised twice: what is charged, what others hold and what is free never exceed the card.
  const Bytes headroom_left = std::max(rules_.headroom - sum.residues, Bytes{});
  const Bytes free = device.reading.for_programs() - headroom_left - sum.charged - other;
  const bool known = device.read_at && device.problem.empty() && !device.lost &&
                     state_.devices.snapshot_problem.empty() && now_ - *device.read_at <= rules_.max_age;
  expect(uuid, "effective free memory", free_on(state_, device, rules_, now_),
         known && is_in_service(state_, uuid) ? free : Bytes{});
}

// The bytes of the listed processes on the device that belong to no lease charged there.
Bytes Validation::unleased_on(const Device& device) const {
  Bytes listed;
  for (const ProcessUse& use : device.reading.processes) listed += use.used.value_or(Bytes{});
  return std::max(listed - device.leased_used, Bytes{});
}

// The park ledger is the sum over all leases with a parking.
void Validation::check_ledger() {
  Bytes entries, unsettled;
  std::map<std::uint32_t, Bytes> of_user;
  for (const auto& [id, lease] : state_.leases.by_id) {
    if (!lease.parking) continue;
    entries += lease.parking->host_bytes;
    of_user[lease.uid] += lease.parking->host_bytes;
    if (!lease.parking->measured) unsettled += lease.parking->host_bytes;
  }
  expect("ledger", "entries", state_.host.entries, entries);
  expect("ledger", "unsettled", state_.host.unsettled, unsettled);
  for (const auto& [uid, bytes] : of_user)
    expect("ledger of uid " + std::to_string(uid), "entries", ledger_of(state_, uid), bytes);
}

// The order at one moment; the queue itself has a key that time does not change. The place by tenant is checked in
// validate_tenants().
bool Validation::goes_before(const Lease& a, const Lease& b) const {
  const auto key_of = [this](LeaseId id) {
    const QueueKey* key = state_.queue.key(id);
    return key == nullptr ? QueueKey{} : *key;
  };
  const QueueKey key_a = key_of(a.id), key_b = key_of(b.id);
  if (key_a.limited != key_b.limited) return key_b.limited;
  if (key_a.guaranteed != key_b.guaranteed) return key_a.guaranteed;
  if (a.tier != b.tier) return a.tier > b.tier;
  if (key_a.share != key_b.share) return key_a.share < key_b.share;
  const Time of_a = a.ordered_since(), of_b = b.ordered_since();
  if (!(rules_.aging_per_minute > 0)) {
    if (a.priority != b.priority) return a.priority > b.priority;
    return of_a != of_b ? of_a < of_b : a.id < b.id;
  }
  // In the time that a point is worth, a whole number of nanoseconds: exact, as the queue's own order is.
  const auto point = std::llround(60e9 / rules_.aging_per_minute);
  const auto aged = [&](const Lease& lease, Time since) { return lease.priority * point + (now_ - since).count(); };
  const auto aged_a = aged(a, of_a), aged_b = aged(b, of_b);
  return aged_a != aged_b ? aged_a > aged_b : a.id < b.id;
}

void Validation::check_queue() {
  std::vector<const Lease*> waiting;
  for (const auto& [id, lease] : state_.leases.by_id)
    if (lease.queues() || lease.waits_in_place()) waiting.push_back(&lease);
  std::ranges::sort(waiting, [this](const Lease* a, const Lease* b) { return goes_before(*a, *b); });
  const std::vector<LeaseId> order = state_.queue.in_order();
  expect("queue", "length", order.size(), waiting.size());
  if (order.size() != waiting.size()) return;
  for (std::size_t i = 0; i < order.size(); ++i) {
    expect("queue", "lease at that place", order[i].number, waiting[i]->id.number);
    expect("queue", "place", state_.queue.place(order[i]), i + 1);
  }
}

// The index of free memory over all devices holds what each of them says. A device that changed in a refused step is
// indexed by the next one.
void Validation::check_free_memory_index() {
  std::size_t indexed = 0, unread = 0;
  for (const auto& [uuid, device] : state_.devices.by_uuid) {
    unread += !device.read_at;
    if (device.indexed.room) {
      ++indexed;
      expect(uuid, "in the index of free memory", state_.devices.by_free.contains(*device.indexed.room), true);
    }
    if (device.indexed.moved || !is_known(state_, device, rules_, now_)) continue;
    expect(uuid, "indexed", device.indexed.room.has_value(), is_in_service(state_, uuid));
    if (device.indexed.room)
      expect(uuid, "indexed free memory", device.indexed.room->free, unclaimed_on(device, rules_));
  }
  expect("devices", "size of the index of free memory", state_.devices.by_free.size(), indexed);
  expect("devices", "never read", count_unread(state_), unread);
}

}  // namespace

std::vector<std::string> validate(const State& state, const Rules& rules, Time now) {
  return Validation(state, rules, now).run();
}

}  // namespace sublet::core::testing
