// SPDX-License-Identifier: Apache-2.0
// Helper for tests of the core with a cooperative program.
#pragma once

#include "core/testing/world.h"

#include <string>
#include <utility>
#include <vector>

namespace sublet::core::testing {

// One card of 24 GiB and a cooperative program that uses 9 of its 10 GiB, with a residue of 32 MiB.
struct Cooperating : World {
  LeaseId victim;
  Cooperating() {
    snapshot({gpu(0, 24 * GiB)});
    victim = run(10 * GiB, 7, "serve");
    measure(9 * GiB);
    EXPECT_TRUE(step(Cooperate{victim, 0, how()}).outcome.has_value());
  }
  static Cooperation how() {
    Cooperation how;
    how.residue = 32 * MiB;
    how.process = process(7);
    return how;
  }
  void measure(Bytes used) {
    now = now + 20ms;
    std::vector<ProcessUse> processes;
    if (used > Bytes{}) processes.push_back(uses(7, used, victim));
    snapshot({gpu(0, 24 * GiB, std::move(processes))});
  }
  Result<LeaseId> pause() { return step(Pause{victim, 0, {PauseCauseKind::owner_request}, plenty}).outcome; }
  void parked(Bytes bytes = {}) { step(AttemptEvent{victim, Parked{true, {}, bytes}}); }
  void refused(std::string why) { step(AttemptEvent{victim, Parked{false, std::move(why)}}); }
  void touching() { ASSERT_TRUE(step(AttemptEvent{victim, LockIntent{{process(7)}}}).outcome.has_value()); }
  void runs(std::optional<HostMemory> host = plenty) {
    step(AttemptEvent{victim, Unparked{Unparked::How::runs, {}, host}});
  }
  void not_yet() { step(AttemptEvent{victim, Unparked{Unparked::How::not_yet, "it does not answer"}}); }
  PauseMethod method() const { return at(victim).parking->method; }
  // Yields, and is measured to hold so much.
  void yields(Bytes parked_bytes = {}, Bytes left = {}) {
    parked(parked_bytes);
    measure(left), measure(left);
  }
  void settle() {
    ASSERT_TRUE(pause().has_value());
    now = now + 3s;
    parked();
    measure(20 * MiB);
    measure(20 * MiB);
    ASSERT_EQ(state_of(victim), LeaseState::paused);
  }
};

}  // namespace sublet::core::testing
