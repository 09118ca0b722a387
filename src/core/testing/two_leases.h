// SPDX-License-Identifier: Apache-2.0
// Helper for tests of pauses: a program with its lease, and a lease that waits for its memory.
#pragma once

#include "core/testing/world.h"

namespace sublet::core::testing {

// One card of 24 GiB, a program that uses 9 of its 10 GiB, and a lease that waits for 20 GiB.
struct TwoLeases : World {
  LeaseId victim, waiter;
  TwoLeases() {
    snapshot({gpu(0, 24 * GiB)});
    victim = run(10 * GiB, 7, "train", 1h);
    measure(9 * GiB);
    waiter = submit(wish(20 * GiB), true);
  }
  void measure(Bytes used, Bytes outside = {}) {
    now = now + 20ms;
    std::vector<ProcessUse> processes;
    if (used > Bytes{}) processes.push_back(uses(7, used, victim));
    if (outside > Bytes{}) processes.push_back(uses(99, outside));
    snapshot({gpu(0, 24 * GiB, std::move(processes))});
  }
  Result<LeaseId> pause(HostMemory host = plenty) {
    return step(Pause{victim, 0, {PauseCauseKind::owner_request}, host}).outcome;
  }
  void parked() { step(AttemptEvent{victim, Parked{true, {}, 9 * GiB}}); }
  void unparked(Unparked::How how = Unparked::How::runs) {
    step(AttemptEvent{victim, Unparked{how, "the driver says 2"}});
  }
  Result<LeaseId> resume() { return step(Resume{victim}).outcome; }
  // Yields, and is measured to hold nothing.
  void yields() {
    parked();
    measure({}), measure({});
  }
  void settle() {
    ASSERT_TRUE(pause().has_value());
    yields();
    ASSERT_EQ(state_of(victim), LeaseState::paused);
  }
  // The lease that waits leaves, so that all of the card is there for the victim.
  void leave() { step(Release{.lease = waiter, .force = true}); }
  void settle_alone() { settle(), leave(); }
  ToRestore room() const { return to_restore(state, at(victim), uuid_of(0)); }
};

}  // namespace sublet::core::testing
