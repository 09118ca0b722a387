// SPDX-License-Identifier: Apache-2.0
#include "explain/rehearse.h"

#include "core/testing/world.h"

namespace sublet::core::testing {
namespace {

struct Rehearsed : OneCard {
  Submit asking(Bytes vram, Tier tier = Tier::standard) {
    Submit fact;
    fact.lease = wish(vram, "new");
    fact.lease.tier = tier;
    fact.held = true;
    return fact;
  }
  LeaseId program(Bytes vram, int pid, Tier tier) {
    Lease lease = wish(vram, "train");
    lease.tier = tier;
    lease.owner.kind = OwnerKind::connection;
    const LeaseId id = submit(std::move(lease), true);
    step(Attach{id, 0, kept_process(pid), true, {}});
    running_.push_back(uses(pid, vram, id));
    measure();
    return id;
  }
  void measure() { snapshot({gpu(0, 24 * GiB, running_)}); }
  explain::Rehearsal would(const Submit& fact) { return *explain::rehearse(state, rules, fact, now); }

 private:
  std::vector<ProcessUse> running_;
};

TEST(Rehearse, ChangesNothingAndSaysWhatThenHappens) {
  Rehearsed w;
  const auto found = w.would(w.asking(8 * GiB));
  EXPECT_EQ(found.would, explain::Would::start);
  EXPECT_EQ(found.lease.devices, std::vector{uuid_of(0)});
  EXPECT_EQ(found.queue.place, 0u);
  EXPECT_TRUE(w.state.leases.by_id.empty());
  EXPECT_EQ(w.state.leases.last_id, 0u);
  EXPECT_EQ(w.state_of(*w.step(w.asking(8 * GiB)).outcome), LeaseState::active);
}

TEST(Rehearse, RefusesAsTheRealOneIsRefused) {
  Rehearsed w;
  for (const Bytes size : {Bytes{}, 100 * GiB}) {
    const auto refused = explain::rehearse(w.state, w.rules, w.asking(size), w.now);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().detail, w.refusal(w.asking(size)).detail);
  }
}

TEST(Rehearse, WhatTheMachineHasOfHostMemoryCountsToo) {
  Rehearsed w;
  w.program(10 * GiB, 100, Tier::batch), w.program(10 * GiB, 102, Tier::batch);
  const Submit fact = w.asking(20 * GiB, Tier::interactive);
  const auto would = [&](Bytes available) {
    w.ram.available = available;
    w.measure();
    explain::Rehearsal found = w.would(fact);
    EXPECT_TRUE(found.room.found);
    explain::limit_to_host(found.room, w.state, w.rules, 1000);
    return found;
  };
  const auto room = [&](Bytes available) { return would(available).room; };
  EXPECT_EQ(room(22 * GiB).victims.size(), 2u) << "2 GiB are kept free";
  EXPECT_EQ(would(22 * GiB).would, explain::Would::preempt);
  const VictimPlan none = room(21 * GiB);
  EXPECT_FALSE(none.found);
  EXPECT_TRUE(none.victims.empty());
  EXPECT_EQ(none.no_victims.code, NoVictims::Code::beyond_ledger);
  EXPECT_SAYS(none.why_not, "20.0 GiB");
  const explain::Rehearsal waits = would(21 * GiB);
  EXPECT_EQ(waits.would, explain::Would::wait);
  EXPECT_EQ(waits.queue.place, 1u);
  EXPECT_FALSE(waits.queue.eta) << "nobody is known to end, and nobody yields";
  EXPECT_SAYS(waits.room.why_not, "19.0 GiB");
}

// The preemptor has no lease yet; with it, the other user is not alone any more.
TEST(Rehearse, SaysThatOneIsEndedWhoseUsersShareBindsOnlyThen) {
  Rehearsed w;
  w.rules.ledger_limit = 24 * GiB;
  const LeaseId spot = w.program(20 * GiB, 100, Tier::spot);
  Submit fact = w.asking(10 * GiB);
  const auto own = w.would(fact);
  ASSERT_EQ(own.room.victims.size(), 1u);
  EXPECT_FALSE(own.room.victims[0].ends);
  fact.lease.uid = 1001;
  const auto found = w.would(fact);
  EXPECT_EQ(found.would, explain::Would::preempt);
  ASSERT_EQ(found.room.victims.size(), 1u);
  EXPECT_EQ(found.room.victims[0].lease, spot);
  EXPECT_TRUE(found.room.victims[0].ends);
}

TEST(Rehearse, NamesThoseWhoWouldYieldAndLeavesThemAlone) {
  Rehearsed w;
  const LeaseId batch = w.program(20 * GiB, 100, Tier::batch);
  const auto found = w.would(w.asking(10 * GiB));
  EXPECT_EQ(found.would, explain::Would::preempt);
  ASSERT_EQ(found.room.victims.size(), 1u);
  EXPECT_EQ(found.room.victims[0].lease, batch);
  EXPECT_GT(found.room.pause, Duration{});
  EXPECT_EQ(w.states(batch), "active");
  EXPECT_EQ(plan_for(w.state, found.lease.id), nullptr);
  EXPECT_FALSE(found.room.paused_for);
  EXPECT_SAYS(found.room.paused_for_basis, "it has no known end");
  Submit limited = w.asking(10 * GiB);
  limited.lease.owner.kind = OwnerKind::connection;
  limited.lease.ttl = 10min;
  const VictimPlan known = w.would(limited).room;
  EXPECT_EQ(known.paused_for, 10min);
  EXPECT_EQ(known.paused_for_basis, "until it ends at its time limit");
  w.rules.automatic = false;
  EXPECT_EQ(w.would(w.asking(10 * GiB)).would, explain::Would::wait);
}

TEST(Rehearse, WhoWouldBeEndedIsNamedTooAndItsProgramHasItsTime) {
  for (const bool ours : {false, true}) {
    Rehearsed w;
    Lease spot = wish(20 * GiB, "spot");
    spot.tier = Tier::spot;
    spot.pausable = Pausable::no;
    spot.owner.kind = ours ? OwnerKind::connection : OwnerKind::token;
    const LeaseId id = w.submit(std::move(spot), true);
    if (ours) w.step(Attach{id, 0, kept_process(7), true, {}});
    const auto found = w.would(w.asking(10 * GiB));
    EXPECT_EQ(found.would, explain::Would::preempt);
    ASSERT_EQ(found.room.victims.size(), 1u);
    EXPECT_TRUE(found.room.victims[0].ends);
    EXPECT_EQ(w.states(id), "active");
    if (!ours) continue;
    EXPECT_FALSE(found.queue.eta);
    EXPECT_SAYS(found.queue.basis, "is ended for it, and has its grace time to end");
  }
}

TEST(Rehearse, WhoseTurnComesIsToldWhoLeaves) {
  Rehearsed w;
  const LeaseId equal = w.program(20 * GiB, 100, Tier::standard);
  const auto found = w.would(w.asking(10 * GiB));
  EXPECT_EQ(found.would, explain::Would::wait);
  EXPECT_SAYS(found.queue.basis, "its time slice begins then");
  ASSERT_TRUE(found.room.found);
  ASSERT_EQ(found.room.victims.size(), 1u);
  EXPECT_EQ(found.room.victims[0].lease, equal);
  EXPECT_GT(found.room.wait, Duration{});
  EXPECT_SAYS(found.room.wait_for, "it has its time slice for");
  EXPECT_GE(found.room.paused_for, 10s);
  EXPECT_SAYS(found.room.paused_for_basis, "for one time slice");
}

TEST(Rehearse, WhoWouldWaitIsToldWhereAndWhyNobodyYields) {
  Rehearsed w;
  const LeaseId batch = w.program(20 * GiB, 100, Tier::interactive);
  const auto found = w.would(w.asking(10 * GiB));
  EXPECT_EQ(found.would, explain::Would::wait);
  EXPECT_EQ(found.queue.place, 1u);
  EXPECT_GT(found.queue.short_bytes, Bytes{});
  EXPECT_FALSE(found.room.found);
  ASSERT_EQ(found.room.ineligible.size(), 1u);
  EXPECT_EQ(found.room.ineligible[0].lease, batch);
  EXPECT_EQ(w.state.queue.size(), 0U);
}

}  // namespace
}  // namespace sublet::core::testing
