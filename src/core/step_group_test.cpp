// SPDX-License-Identifier: Apache-2.0
// Leases that belong to a control group.
#include "core/testing/world.h"

namespace sublet::core::testing {
namespace {

using namespace std::chrono_literals;

Lease of_group(Bytes vram, std::uint64_t inode = 0) {
  Lease lease = wish(vram);
  lease.owner.kind = OwnerKind::group;
  lease.owner.cgroup = "/sys/fs/cgroup/job_7";
  lease.owner.inode = inode;
  return lease;
}

struct Group : World {
  Group() { snapshot({gpu(0, 24 * GiB)}); }
  void seen(LeaseId id, bool populated, std::uint64_t inode = 5) { step(GroupReport{id, populated, inode}); }
};

TEST(Group, ALeaseOfAGroupWithProcessesIsActiveAtOnce) {
  Group w;
  const LeaseId id = w.submit(of_group(8 * GiB, 5));
  EXPECT_EQ(w.states(id), "active");
  EXPECT_TRUE(w.at(id).had_process);
}

TEST(Group, ALeaseIsOfferedUntilTheFirstProcessOfItsGroupIsSeen) {
  Group w;
  const LeaseId id = w.submit(of_group(8 * GiB));
  EXPECT_EQ(w.states(id), "offered");
  EXPECT_EQ(w.refusal(Claim{id}).code, Code::Stale);
  w.seen(id, false, 0), w.seen(id, false);
  EXPECT_EQ(w.states(id), "offered") << "its first process is still to come";
  w.seen(id, true);
  EXPECT_EQ(w.states(id), "active");
  EXPECT_EQ(w.at(id).owner.inode, 5U);
}

TEST(Group, AGroupThatNeverHasAProcessKeepsNoMemory) {
  Group w;
  const LeaseId id = w.submit(of_group(8 * GiB));
  w.pass(2 * w.rules.claim_window + 1s);
  EXPECT_EQ(w.states(id), "gone");
  w.snapshot({gpu(0, 24 * GiB)});
  EXPECT_EQ(w.free(0), 24 * GiB);
}

TEST(Group, AWaitingLeaseNeedsNoConnectionAndNoClaim) {
  Group w;
  const LeaseId first = w.submit(of_group(20 * GiB, 5));
  Lease next = of_group(20 * GiB, 6);
  next.owner.cgroup = "/sys/fs/cgroup/job_8";
  const LeaseId id = w.submit(next);
  w.pass(1h);
  EXPECT_EQ(w.states(first, id), "active queued");
  w.seen(first, false);
  w.now = w.now + 20ms;
  w.snapshot({gpu(0, 24 * GiB)});
  EXPECT_EQ(w.states(id), "active");
}

TEST(Group, ALeaseEndsWithTheLastProcessAndItsBytesWaitForAMeasurement) {
  Group w;
  const LeaseId id = w.submit(of_group(8 * GiB, 5));
  w.now = w.now + 20ms;
  w.snapshot({gpu(0, 24 * GiB, {uses(7, 6 * GiB, id)})});
  w.seen(id, false);
  EXPECT_EQ(w.told(id).end_reason, EndReason::released);
  EXPECT_EQ(w.free(0), 16 * GiB) << "nobody has seen that its bytes are gone";
  w.now = w.now + 20ms;
  w.snapshot({gpu(0, 24 * GiB)});
  EXPECT_TRUE(w.gone(id));
  EXPECT_EQ(w.free(0), 24 * GiB);
}

TEST(Group, AnotherGroupOfTheSameNameIsNotItsOwner) {
  Group w;
  const LeaseId id = w.submit(of_group(8 * GiB, 5));
  w.seen(id, true, 6);
  EXPECT_EQ(w.told(id).state, LeaseState::ended);
}

TEST(Group, AWaitingLeaseEndsWithItsGroup) {
  Group w;
  w.submit(of_group(20 * GiB, 5));
  Lease next = of_group(20 * GiB, 6);
  next.owner.cgroup = "/sys/fs/cgroup/job_8";
  const LeaseId id = w.submit(next);
  w.seen(id, false, 0);
  EXPECT_EQ(w.told(id).end_reason, EndReason::cancelled);
}

TEST(Group, APausedLeaseEndsWithItsGroupToo) {
  Group w;
  const LeaseId id = w.submit(of_group(8 * GiB, 5));
  w.now = w.now + 20ms;
  w.snapshot({gpu(0, 24 * GiB, {uses(7, 6 * GiB, id)})});
  ASSERT_TRUE(w.accepts(Pause{id, 0, {}, plenty})) << "the agent speaks for its user: no grant is needed";
  w.step(AttemptEvent{id, Parked{true, {}, 6 * GiB}});
  for (int reading = 0; reading < 2; ++reading) w.now = w.now + 20ms, w.snapshot({gpu(0, 24 * GiB)});
  ASSERT_EQ(w.states(id), "paused");
  w.seen(id, false, 0);
  EXPECT_TRUE(w.gone(id) || w.told(id).ended());
}

TEST(Group, NoProcessBecomesTheOwnerInstead) {
  Group w;
  const LeaseId id = w.submit(of_group(8 * GiB, 5));
  EXPECT_EQ(w.refusal(Attach{id, 0, kept_process(7), true, {}}).code, Code::BadRequest);
  EXPECT_TRUE(w.accepts(Attach{id, 0, {}, false, {process(7), {}}})) << "a process may be booked beside the group";
}

TEST(Group, AReportAboutAnotherLeaseIsRefused) {
  Group w;
  const LeaseId id = w.submit(8 * GiB);
  EXPECT_EQ(w.refusal(GroupReport{id, false, 0}).code, Code::NotFound);
  EXPECT_EQ(w.states(id), "active");
}

}  // namespace
}  // namespace sublet::core::testing
