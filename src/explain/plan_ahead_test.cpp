// SPDX-License-Identifier: Apache-2.0
#include "explain/plan_ahead.h"

#include "core/testing/world.h"

namespace sublet::core::testing {
namespace {

struct Planned : OneCard {
  Submit asking(Bytes vram, Tier tier = Tier::standard) {
    Submit fact;
    fact.lease = wish(vram, "new");
    fact.lease.tier = tier;
    fact.held = true;
    return fact;
  }
  LeaseId program(Bytes vram, int pid, Tier tier, Pausable pausable = Pausable::automatic) {
    Lease lease = wish(vram, "train");
    lease.tier = tier;
    lease.pausable = pausable;
    lease.owner.kind = OwnerKind::connection;
    const LeaseId id = submit(std::move(lease), true);
    step(Attach{id, 0, kept_process(pid), true, {}});
    running_.push_back(uses(pid, vram, id));
    snapshot({gpu(0, 24 * GiB, running_)});
    return id;
  }
  std::vector<explain::PlannedStart> plan(const Submit& fact, int count) {
    return *explain::plan_ahead(state, rules, fact, count, now);
  }

 private:
  std::vector<ProcessUse> running_;
};

TEST(PlanAhead, StartsAtOnceAsLongAsThereIsMemoryAndChangesNothing) {
  Planned w;
  const std::uint64_t steps = w.state.steps;
  const auto planned = w.plan(w.asking(10 * GiB), 3);
  ASSERT_EQ(planned.size(), 3U);
  EXPECT_EQ(planned[0].at, w.now);
  EXPECT_EQ(planned[1].at, w.now);
  EXPECT_FALSE(planned[2].at == w.now) << "24 GiB hold two";
  EXPECT_EQ(w.state.steps, steps);
}

TEST(PlanAhead, NamesThePausedLeaseAndThoseThatWaitForAnUnknownEnd) {
  Planned w;
  const LeaseId victim = w.program(20 * GiB, 100, Tier::batch);
  const auto planned = w.plan(w.asking(16 * GiB), 2);
  ASSERT_TRUE(planned[0].at);
  EXPECT_GT(*planned[0].at, w.now) << "the pause takes a while";
  ASSERT_EQ(planned[0].yields.size(), 1U);
  EXPECT_EQ(planned[0].yields[0].lease, victim);
  EXPECT_FALSE(planned[0].yields[0].ends);
  EXPECT_EQ(planned[0].lease.devices.size(), 1U);
  EXPECT_EQ(planned[1].queue.place, 2U);
}

TEST(PlanAhead, TellsThatASpotLeaseIsEnded) {
  Planned w;
  const LeaseId victim = w.program(20 * GiB, 100, Tier::spot, Pausable::no);
  const auto planned = w.plan(w.asking(16 * GiB), 1);
  ASSERT_EQ(planned[0].yields.size(), 1U);
  EXPECT_EQ(planned[0].yields[0].lease, victim);
  EXPECT_TRUE(planned[0].yields[0].ends);
  EXPECT_EQ(planned[0].at, w.now + w.rules.grace) << planned[0].queue.basis;
  EXPECT_NE(planned[0].queue.basis.find("is ended for it"), std::string::npos) << planned[0].queue.basis;
}

TEST(PlanAhead, NamesALeaseThatIsEndedForTheFirstOfThemOnly) {
  Planned w;
  (void)w.program(20 * GiB, 100, Tier::spot, Pausable::no);
  const auto planned = w.plan(w.asking(11 * GiB), 2);
  EXPECT_EQ(planned[0].yields.size(), 1U);
  EXPECT_TRUE(planned[1].yields.empty()) << "what was ended for another is no victim of this one";
}

TEST(PlanAhead, PassesARefusalOn) {
  Planned w;
  const auto refused = explain::plan_ahead(w.state, w.rules, w.asking(80 * GiB), 2, w.now);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::TooLarge);
}

}  // namespace
}  // namespace sublet::core::testing
