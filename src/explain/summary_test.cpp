// SPDX-License-Identifier: Apache-2.0
#include "explain/summary.h"

#include "core/testing/two_leases.h"

namespace sublet::core::testing {
namespace {

struct Summed : World {
  Summed() {
    rules.automatic = false;
    snapshot({gpu(0, 24 * GiB)});
  }
  std::string of(LeaseId id, const explain::Aspects& aspects = {}) {
    const Lease& lease = *core::find(state, id);
    const explain::QueueInfo queue = info(id);
    return explain::summary(state, lease, what_blocks(state, rules, lease, now), queue.place > 0 ? &queue : nullptr,
                            aspects);
  }
};

TEST(Summary, TellsWhatALeaseHoldsAndUses) {
  Summed w;
  const LeaseId id = w.run(12 * GiB, 100);
  w.snapshot({gpu(0, 24 * GiB, {uses(100, 5 * GiB, id)})});
  EXPECT_EQ(w.of(id), "lease-1 holds 12.0 GiB on gpu0, and uses 5.0 GiB");
  EXPECT_EQ(w.of(id, {.stopped = "stopped by a debugger"}),
            "lease-1 holds 12.0 GiB on gpu0, and uses 5.0 GiB; its program is stopped by a debugger");
  w.snapshot({gpu(0, 24 * GiB, {uses(100, 13 * GiB, id)})});
  EXPECT_EQ(w.of(id), "lease-1 holds 12.0 GiB on gpu0, and uses 13.0 GiB, which is 1.0 GiB more than it leased");
}

TEST(Summary, TellsThePlaceOfAWaitingLeaseAndWhatItLacks) {
  Summed w;
  w.run(20 * GiB, 100);
  const LeaseId waits = w.submit(10 * GiB);
  EXPECT_TRUE(w.of(waits).starts_with("lease-2 waits at place 1: ")) << w.of(waits);
  EXPECT_NE(w.of(waits).find(" short on gpu0"), std::string::npos) << w.of(waits);
}

TEST(Summary, TellsThatAProgramIsEnding) {
  Summed w;
  const LeaseId id = w.run(GiB, 100);
  w.step(Release{.lease = id, .stop = true});
  EXPECT_EQ(w.of(id), "lease-1 is stopping");
  EXPECT_EQ(w.of(id, {.keeper_killed = true}), "lease-1 is stopping, and its keeper was killed");
}

}  // namespace
}  // namespace sublet::core::testing
