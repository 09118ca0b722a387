// SPDX-License-Identifier: Apache-2.0
// Memory that is reserved for leases that have waited long, so that small requests behind them cannot keep them out for
// ever. Other leases may take some of it all the same. For this folder and src/explain; reads only.
//
// The first leases in the queue that have waited for queue.reserve_after, or were preempted, get a nomination. A lease
// that named just the devices that it wants, or has some, gets it there. One other lease gets it where it can start
// first. Leases behind a nominated lease may take the memory that it leaves over at its start, or more if they end
// before its start. If no known end lets it start, it leaves over the memory of the whole device that it does not need.
// Grants there since it has waited so long are taken off. Nothing is reserved where the lease could not start before a
// lease that is parked there is back.
#pragma once

#include "lease/rules.h"
#include "state/state.h"

#include <optional>
#include <string>
#include <vector>

namespace sublet::core {

class Nominations {
 public:
  Nominations(const State& state, const Rules& rules, Time now);

  struct Entry {
    Nomination room;
    QueueKey key;  // of its waiter
  };

  const std::vector<Entry>& entries() const { return entries_; }
  // Another lease got memory on these devices; `key` is its place in the queue. False: it was one of the leases
  // examined here, so that all of this has to be computed anew.
  bool given(const QueueKey& key, const std::vector<std::string>& devices);
  // The expected start of the entry's waiter; unset: unknown.
  std::optional<Time> start(const Entry& entry) const {
    return terms(static_cast<std::size_t>(&entry - entries_.data())).start;
  }
  // The part of a device's free memory that a waiter may take there.
  Bytes allowance(const QueueKey& key, const Lease& lease, const DeviceFree& room) const;
  // The part that any lease may take there, however far behind and however long it stays.
  Bytes open_room(const DeviceFree& room) const;
  // The number of devices with nominations or preemption plans.
  std::size_t devices() const { return held_.size() + state_.preemption.plans.size(); }

 private:
  // The terms of an entry, computed on first use, because most steps need few of them.
  struct Terms {
    std::optional<Time> start;
    std::vector<Bytes> left;  // on each of its devices, for those who stand behind
  };
  struct Held {
    std::uint32_t device;      // number of the device
    std::size_t entry, place;  // `place`: its place among the devices of the entry
  };

  const Terms& terms(std::size_t entry) const;
  Bytes left_over(const Held& held, const DeviceFree& room) const;
  Bytes left(const Held& held) const { return terms(held.entry).left[held.place]; }
  void add(const QueueKey& key);
  std::optional<Nomination> choose(const Lease& waiter) const;
  Bytes kept_for(const std::vector<LeaseId>& waiters, const std::string& device) const;
  std::optional<Bytes> comes_in(const PreemptionPlan& plan, const Lease& lease, const DeviceFree& room) const;
  Bytes beside_plan(const Lease& lease, const std::string& device, Bytes room) const;
  const Device* free_to_hold(const Lease& waiter, const std::string& device) const;  // null: none can be reserved
  const Held* held_on(std::uint32_t device) const;                                   // null: none is reserved

  const State& state_;
  const Rules& rules_;
  const Time now_;
  bool any_ = false;              // one waiter that takes one of several devices has a nomination
  std::optional<QueueKey> last_;  // the last waiter that was examined
  std::vector<Entry> entries_;
  mutable std::vector<std::optional<Terms>> terms_;  // of the entries
  std::vector<Held> held_;
};

// The nomination that keeps the lease from memory where it would fit; null if it fits nowhere.
const Nominations::Entry* nomination_before(const State& state, const Rules& rules, const Lease& lease,
                                            const Nominations& held, Time now);
// The nomination as arguments of the fragment "reserved".
ReasonArgs nomination_args(const State& state, const Nominations& held, const Nominations::Entry& entry, Time now);

}  // namespace sublet::core
