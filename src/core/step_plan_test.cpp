// SPDX-License-Identifier: Apache-2.0
// The life of a preemption plan.
#include "core/testing/ideal_executor.h"

#include <functional>

namespace sublet::core::testing {
namespace {

// Two programs of 12 GiB each, and a plan for a lease that needs both.
struct TwoVictims : Card {
  LeaseId first, second, urgent;
  TwoVictims() {
    first = start(12 * GiB, Tier::batch, "first");
    second = start(12 * GiB, Tier::batch, "second");
    live(30s);
    urgent = queue(20 * GiB, Tier::standard, "urgent");
  }
  // The first order was carried out, and the second victim is asked.
  void half() { obey(1); }
  const PreemptionPlan* plan() const { return plan_for(state, urgent); }
  LeaseId left() const { return plan()->asked.front() == first ? second : first; }
};

TEST(Plan, LastsFromItsFirstVictimUntilItsBeneficiaryHasItsMemory) {
  TwoVictims w;
  ASSERT_NE(w.plan(), nullptr);
  const std::uint64_t id = w.plan()->id;
  EXPECT_EQ(w.plan()->phase(), PreemptionPlan::Phase::draining);
  EXPECT_EQ(w.plan()->victims.size(), 1U);
  ASSERT_EQ(w.plans.size(), 1U) << "it is stored";
  w.half();
  EXPECT_EQ(w.plan()->id, id);
  EXPECT_EQ(w.plan()->phase(), PreemptionPlan::Phase::ready) << "all victims are asked";
  EXPECT_EQ(w.plan()->asked.size(), 2U);
  w.obey();
  EXPECT_EQ(w.states(w.urgent), "active");
  EXPECT_EQ(w.plan(), nullptr);
  EXPECT_TRUE(w.plans.empty());
}

TEST(Plan, IsCancelledForAReason) {
  const struct {
    const char* reason;
    std::function<void(TwoVictims&)> happens;
  } rows[] = {
      {"unwanted",
       [](TwoVictims& w) {
         w.rules.automatic = false, w.step(Serve{uuid_of(1), "no such device"});
       }},
      {"out_of_service",
       [](TwoVictims& w) {
         w.step(Serve{uuid_of(0), "for repair"});
       }},
      {"no_victims",
       [](TwoVictims& w) {
         const LeaseId left = w.left();
         w.step(AttemptEvent{w.plan()->asked.front(), Parked{false, "it refuses"}});
         w.step(Amend{.lease = left, .pausable = Pausable::no});
       }},
      {"outranked", [](TwoVictims& w) { w.queue(22 * GiB, Tier::critical, "alarm"); }},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.reason);
    TwoVictims w;
    ASSERT_NE(w.plan(), nullptr);
    row.happens(w);
    w.measure();
    EXPECT_EQ(w.plan(), nullptr);
    EXPECT_TRUE(w.reason(w.urgent, ReasonKind::preemption_cancelled).flag(row.reason));
    for (const auto& [id, record] : w.plans) EXPECT_NE(record.beneficiaries.front(), w.urgent) << "it is not stored";
  }
}

TEST(Plan, WaitsForAVictimThatMayBePausedLaterButNotForEver) {
  for (const bool again : {true, false}) {
    SCOPED_TRACE(again);
    TwoVictims w;
    const LeaseId left = w.left();
    w.half();
    ASSERT_EQ(w.states(left), "pausing");
    const LeaseId small = w.queue(4 * GiB, Tier::batch, "small");
    const auto fails = [&] {
      w.step(AttemptEvent{left, Parked{false, "it refuses"}});
      w.step(AttemptEvent{left, Unparked{Unparked::How::runs, {}, plenty}});
      w.obeyed = w.actions.size();
      w.measure();
    };
    fails();
    ASSERT_EQ(w.states(left, small), "active queued") << "what is free is reserved for the plan";
    ASSERT_NE(w.plan(), nullptr);
    if (again) {
      w.live(30s);
      EXPECT_EQ(w.states(w.urgent), "active");
      continue;
    }
    w.step(Amend{.lease = left, .pausable = Pausable::no});
    w.measure();
    EXPECT_EQ(w.plan(), nullptr);
    EXPECT_TRUE(w.reason(w.urgent, ReasonKind::preemption_cancelled).flag("no_victims"));
    w.live(30s);
    EXPECT_EQ(w.states(w.first, w.second), "active active") << "who yielded is back";
  }
}

TEST(Plan, GoesOnAfterARestart) {
  TwoVictims w;
  const LeaseId left = w.left(), gone = w.plan()->asked.front();
  w.half();
  const LeaseId small = w.queue(4 * GiB, Tier::batch, "small");
  const std::uint64_t id = w.plan()->id;
  w.restart();
  for (const LeaseId waits : {w.urgent, small}) w.step(HeldChanged{waits, true});
  w.obeyed = w.actions.size() - 1;  // the pause that was half done is undone
  w.measure();
  ASSERT_NE(w.plan(), nullptr);
  EXPECT_EQ(w.plan()->id, id);
  EXPECT_EQ(w.states(gone, small), "paused queued") << "its memory is still reserved";
  w.live(40s);
  EXPECT_EQ(w.states(gone, left, w.urgent, small), "paused paused active queued");
  EXPECT_TRUE(w.plans.empty());
}

TEST(Plan, IsForgottenIfNoLeaseWaitsForItAfterARestart) {
  TwoVictims w;
  w.half();
  auto records = w.plans;
  w.step(Release{.lease = w.urgent, .force = true});
  ASSERT_TRUE(w.plans.empty());
  w.plans = records;  // as if the end of the plan was lost
  w.restart();
  EXPECT_TRUE(w.plans.empty());
  EXPECT_TRUE(w.state.preemption.plans.empty());
}

// The state knows no device by a lease that is still empty when the daemon starts.
TEST(Plan, OfSeveralDevicesGoesOnAfterARestart) {
  Card w;
  w.cards = 2;
  w.measure();
  const LeaseId first = w.start(12 * GiB, Tier::batch, "first"), second = w.start(12 * GiB, Tier::batch, "second");
  ASSERT_EQ(w.device_of(first), w.device_of(second));
  Lease gang = w.want(20 * GiB, Tier::standard, "gang");
  gang.device_count = 2;
  const LeaseId waits = w.submit(gang, true);
  ASSERT_NE(plan_for(w.state, waits), nullptr);
  w.obey(1);
  w.restart();
  ASSERT_NE(plan_for(w.state, waits), nullptr);
  w.step(HeldChanged{waits, true});
  w.obeyed = w.actions.size() - 1;
  w.measure();
  w.live(60s);
  EXPECT_EQ(w.states(first, second, waits), "paused paused active");
}

TEST(Plan, OneVictimComesBackAlthoughAnotherIsStillOwedItsMemory) {
  Card w;
  const LeaseId large = w.start(16 * GiB, Tier::batch, "large"), small = w.start(8 * GiB, Tier::batch, "small");
  const LeaseId brief = w.queue(7 * GiB, Tier::interactive, "brief");
  w.obey();
  ASSERT_EQ(w.states(large, small, brief), "active paused active");
  w.attach(brief);
  const LeaseId stays = w.queue(12 * GiB, Tier::interactive, "stays");
  w.obey();
  ASSERT_EQ(w.states(large, stays), "paused active");
  w.attach(stays);
  w.quit(brief);
  EXPECT_EQ(w.states(large, small), "paused active") << "the large one fits once its preemptor is gone";
}

TEST(Plan, LeasesThatCameLaterCountWhatWasThereBeforeThePause) {
  Card w;
  w.pinned(8 * GiB, Tier::batch, "stays");
  const LeaseId victim = w.start(12 * GiB, Tier::batch, "victim");
  const LeaseId urgent = w.queue(10 * GiB, Tier::interactive, "urgent");
  w.obey();
  ASSERT_EQ(w.states(victim, urgent), "paused active");
  w.attach(urgent);
  const LeaseId later = w.queue(6 * GiB, Tier::batch, "later"), small = w.queue(3 * GiB, Tier::batch, "small");
  EXPECT_EQ(w.states(later, small), "queued active") << "4 GiB are left over";
  w.attach(small);
  w.quit(urgent);
  EXPECT_EQ(w.states(victim), "active");
}

TEST(Plan, WhatItsBeneficiaryGivesBackGoesToItsVictimFirst) {
  Card w;
  const LeaseId victim = w.start(16 * GiB, Tier::batch, "victim"), urgent = w.start(12 * GiB, Tier::standard, "infer");
  w.obey();
  ASSERT_EQ(w.states(victim, urgent), "paused active");
  w.attach(urgent);
  std::vector<LeaseId> later;
  for (int i = 0; i < 4; ++i) later.push_back(w.queue(6 * GiB, Tier::batch, "later"));
  EXPECT_EQ(w.states(later[0], later[1]), "active queued") << "only one of them fits beside the victim";
  w.live(8s);
  w.quit(urgent);
  EXPECT_EQ(w.states(victim, later[1]), "active queued");
}

}  // namespace
}  // namespace sublet::core::testing
