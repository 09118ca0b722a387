// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of time slices: the service time of each lease.
#pragma once

#include "core/testing/ideal_executor.h"

namespace sublet::core::testing {

struct Shares {
  std::map<LeaseId, Duration> had;
  int switches = 0;
  Duration apart(LeaseId a, LeaseId b) { return std::chrono::abs(had[a] - had[b]); }
};

// Cards whose leases share them in turn.
struct Sharing : Card {
  explicit Sharing(Duration residency, std::optional<Bytes> ledger = {}, unsigned count = 1) {
    cards = count;
    measure();
    rules.min_residency = residency;
    rules.ledger_limit = ledger.value_or(rules.ledger_limit);
  }
};

inline Shares share(Card& w, const std::vector<LeaseId>& all, Duration d) {
  Shares shares;
  std::map<LeaseId, LeaseState> before;
  const Time until = w.now + d;
  while (w.now < until) {
    const Time then = w.now;
    w.live(1s);
    for (const LeaseId id : all) {
      if (w.state_of(id) == LeaseState::active && !w.programs.contains(id)) w.attach(id);
      if (w.state_of(id) == LeaseState::active) shares.had[id] += w.now - then;
      shares.switches += before[id] == LeaseState::active && w.state_of(id) != LeaseState::active;
      before[id] = w.state_of(id);
    }
  }
  return shares;
}

// One lease on both of two cards, and other leases that want one of them.
struct Several : Sharing {
  LeaseId both;
  explicit Several(Duration residency) : Sharing(residency, 128 * GiB, 2) {
    Lease lease = want(14 * GiB, Tier::standard, "both");
    lease.device_count = 2;
    both = submit(lease, true);
    attach(both);
  }
  LeaseId on_card(unsigned card, std::string name) {
    Lease lease = want(14 * GiB, Tier::standard, std::move(name));
    lease.wanted_devices = {uuid_of(card)};
    return submit(lease, true);
  }
};

}  // namespace sublet::core::testing
