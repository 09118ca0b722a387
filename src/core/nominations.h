// SPDX-License-Identifier: Apache-2.0
// Room that is held for those who have waited long, so that small requests behind them cannot keep them out for ever,
// and what may go ahead of them all the same. Private to this folder; reads only.
//
// The first in the order that have waited for queue.reserve_after have room held: each on the devices that it named or
// has, and one of those that take any on the devices where it can start first. Whoever stands behind it may take there
// what it leaves over at its start, or more if it is known to be back by then. Where no known end lets it start, what
// it leaves over is what it does not need of the whole device, less what others were given there since it has waited so
// long.
// Nothing is held where it could not start before somebody is back who is parked there.
#pragma once

#include "core/rules.h"
#include "core/state.h"

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
  // Another was given room on these devices; it stood at that place in the queue. False: it was one of those who were
  // looked at, so that all of this is to be worked out anew.
  bool given(const QueueKey& key, const std::vector<std::string>& devices);
  // When the waiter of one of these entries can start, by the known ends; unset: unknown.
  std::optional<Time> start(const Entry& entry) const {
    return terms(static_cast<std::size_t>(&entry - entries_.data())).start;
  }
  // How much of what is free on a device a waiter may take there.
  Bytes allowance(const QueueKey& key, const Lease& lease, const DeviceFree& room) const;
  // The least that anybody may take there, however far behind and for however long.
  Bytes open_room(const DeviceFree& room) const;
  // On so many devices something is held, or made for somebody.
  std::size_t devices() const { return held_.size() + state_.plans().size(); }

 private:
  // Of an entry: worked out when first asked for, because most steps come to the same place on few of the devices.
  struct Terms {
    std::optional<Time> start;
    std::vector<Bytes> left;  // on each of its devices, for those who stand behind
  };
  struct Held {
    std::uint32_t device;      // its number
    std::size_t entry, place;  // the device's among those of the entry
  };

  const Terms& terms(std::size_t entry) const;
  Bytes left_over(const Held& held, const DeviceFree& room) const;
  Bytes left(const Held& held) const { return terms(held.entry).left[held.place]; }
  void add(const QueueKey& key);
  std::optional<Nomination> choose(const Lease& waiter) const;
  Bytes kept_for(const std::vector<LeaseId>& waiters, const std::string& device) const;
  std::vector<LeaseId> come_in(const PreemptionPlan& plan) const;
  std::optional<Bytes> comes_in(const PreemptionPlan& plan, const Lease& lease, const DeviceFree& room) const;
  Bytes beside_plan(const Lease& lease, const std::string& device, Bytes room) const;
  const Device* free_to_hold(const Lease& waiter, const std::string& device) const;  // null: it is not
  const Held* held_on(std::uint32_t device) const;                                   // null: nothing is

  const State& state_;
  const Rules& rules_;
  const Time now_;
  bool any_ = false;              // one of those that take any device has its room
  std::optional<QueueKey> last_;  // of those who were looked at
  std::vector<Entry> entries_;
  mutable std::vector<std::optional<Terms>> terms_;  // of the entries
  std::vector<Held> held_;
};

}  // namespace sublet::core
