// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of time slices and of several cards: leases as rows, and how long each was active.
#pragma once

#include "core/testing/ideal_executor.h"

namespace sublet::core::testing {

inline constexpr int any = -1;

// A lease of a test: on this card, or on any.
struct Wanted {
  Bytes vram;
  int card = any;
  int priority = 0;
  Tier tier = Tier::standard;
  int count = 1;
  Pausable pausable = Pausable::automatic;
  std::uint32_t uid = 1000;
};

inline LeaseId add(Card& w, const Wanted& wanted) {
  Lease lease = w.want(wanted.vram, wanted.tier, "l" + std::to_string(w.state.leases.last_id));
  if (wanted.card != any) lease.wanted_devices = {uuid_of(wanted.card)};
  lease.priority = wanted.priority;
  lease.device_count = wanted.count;
  lease.pausable = wanted.pausable;
  lease.uid = wanted.uid;
  const LeaseId id = w.submit(lease, true);
  if (w.state_of(id) == LeaseState::active) w.attach(id);
  return id;
}

inline std::vector<LeaseId> add(Card& w, const std::vector<Wanted>& wanted) {
  std::vector<LeaseId> all;
  for (const Wanted& one : wanted) all.push_back(add(w, one));
  return all;
}

inline Wanted gang(Bytes vram, int priority = 0) { return {vram, any, priority, Tier::standard, 2}; }

struct Served {
  std::map<LeaseId, Duration> had;
  int switches = 0;
};

// Cards whose leases share them.
struct Sharing : Card {
  explicit Sharing(Duration residency, std::optional<Bytes> ledger = {}, unsigned count = 1) {
    cards = count;
    measure();
    rules.min_residency = residency;
    rules.ledger_limit = ledger.value_or(rules.ledger_limit);
  }
};

inline Served share(Card& w, const std::vector<LeaseId>& all, Duration d) {
  Served served;
  std::map<LeaseId, LeaseState> before;
  const Time until = w.now + d;
  while (w.now < until) {
    const Time then = w.now;
    w.live(1s);
    for (const LeaseId id : all) {
      const bool active = w.state_of(id) == LeaseState::active;
      if (active && !w.programs.contains(id)) w.attach(id);
      if (active) served.had[id] += w.now - then;
      served.switches += before[id] == LeaseState::active && !active;
      before[id] = w.state_of(id);
    }
  }
  return served;
}

}  // namespace sublet::core::testing
