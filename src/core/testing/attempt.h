// SPDX-License-Identifier: Apache-2.0
// Helper for tests that pause one program under all circumstances.
#pragma once

#include "core/testing/world.h"

#include <utility>
#include <vector>

namespace sublet::core::testing {

// One card of 24 GiB, a cooperative program that uses 9 of its 10 GiB, and a critical lease that may come.
struct Attempt : World {
  LeaseId victim, urgent;
  Attempt() {
    snapshot({gpu(0, 24 * GiB)});
    victim = run(10 * GiB, 7, "serve");
    measure(9 * GiB);
  }
  void cooperate() {
    Cooperation how;
    how.residue = 32 * MiB;
    how.process = process(7);
    step(Cooperate{victim, 0, how});
  }
  void measure(Bytes used, Bytes unlisted = {}) {
    now = now + 20ms;
    std::vector<ProcessUse> processes{uses(99, 100 * MiB)};  // an empty list is not believed
    if (used > Bytes{}) processes.push_back(uses(7, used, victim));
    snapshot({gpu(0, 24 * GiB, std::move(processes), unlisted)});
  }
  void ask() {
    Lease lease = wish(20 * GiB, "infer");
    lease.tier = Tier::interactive;
    urgent = submit(lease, true);
  }
  Result<LeaseId> pause() { return step(Pause{victim, 0, {PauseCauseKind::owner_request}, plenty}).outcome; }
  void refused() { step(AttemptEvent{victim, Parked{false, "it refuses"}}); }
  void parked() { step(AttemptEvent{victim, Parked{true, {}, 9 * GiB}}); }
  void runs() { step(AttemptEvent{victim, Unparked{Unparked::How::runs, {}, plenty}}); }
  // Yields, and is measured to hold nothing.
  void yields() {
    parked();
    measure({}), measure({});
  }
  const Parking& parking() const { return *at(victim).parking; }
  Standing standing() const { return standing_of(state, victim); }
};

}  // namespace sublet::core::testing
