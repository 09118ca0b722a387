// SPDX-License-Identifier: Apache-2.0
// Estimates and victims by pauses and time slices, beside what then happens with programs that obey.
#include "core/testing/ideal_executor.h"

#include <functional>

namespace sublet::core::testing {
namespace {

Lease pinned_spot(Card& card, Bytes vram) {
  Lease lease = card.want(vram, Tier::spot, "crawl");
  lease.owner.kind = OwnerKind::token;
  lease.ttl = 1h;
  lease.pausable = Pausable::no;
  return lease;
}

// A victim that resumes: its urgent preemptor has ended.
LeaseId resuming(Card& w, Tier tier) {
  const LeaseId back = w.start(20 * GiB, tier, "back"), urgent = w.start(10 * GiB, Tier::critical, "urgent");
  w.obey();
  w.attach(urgent);
  w.programs.erase(urgent);
  w.step(ProgramEnded{urgent, 0, false});
  w.measure();
  EXPECT_EQ(w.states(back), "resuming");
  return back;
}

// Makes a lease that waits.
using Scene = std::function<LeaseId(Card&)>;

TEST(Projection, ForeseesWhatThenHappens) {
  const struct {
    const char* what;
    Scene scene;
    std::string basis;
  } rows[] = {
      {"a lower tier is being paused",
       [](Card& w) {
         w.start(20 * GiB, Tier::batch);
         return w.start(10 * GiB, Tier::interactive, "infer");
       },
       "memory is being freed for it by pausing lease-1 (train, ana): its pause takes about "},
      {"the victim is resuming",
       [](Card& w) {
         resuming(w, Tier::batch);
         return w.queue(10 * GiB, Tier::interactive, "next");
       },
       "it is resuming, for about "},
      {"the victim resumed a moment ago",
       [](Card& w) {
         resuming(w, Tier::batch), w.obey();
         return w.queue(10 * GiB, Tier::interactive, "next");
       },
       "it resumed from a pause less than 2 s ago; then its pause takes about "},
      {"another waiter is before it",
       [](Card& w) {
         resuming(w, Tier::batch);
         w.queue(10 * GiB, Tier::interactive, "first");
         return w.queue(10 * GiB, Tier::interactive, "second");
       },
       "lease-1 (back, ana)"},
      {"its time slice comes",
       [](Card& w) {
         w.start(20 * GiB, Tier::standard);
         return w.start(20 * GiB, Tier::standard, "equal");
       },
       "its time slice begins then: lease-1 (train, ana) is paused, and its pause takes about "},
      {"its time slice is the second one",
       [](Card& w) {
         w.rules.ledger_limit = 128 * GiB;
         w.start(14 * GiB, Tier::standard);
         Lease lease = w.want(14 * GiB, Tier::standard, "equal");
         lease.command = "python train.py";
         w.submit(lease, true);
         return w.submit(lease, true);
       },
       ""},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    Card w;
    const LeaseId waits = row.scene(w);
    ASSERT_EQ(w.states(waits), "queued");
    const std::uint64_t steps = w.state.steps;
    const explain::QueueInfo info = w.info(waits);
    EXPECT_EQ(w.state.steps, steps) << "only a copy changes";
    EXPECT_SAYS(info.basis, row.basis);
    ASSERT_TRUE(info.eta) << info.basis;
    const Time from = w.now;
    while (w.state_of(waits) == LeaseState::queued && w.now < from + 20min) {
      w.live(100ms);
      for (const Lease& lease : w.stored())
        if (lease.state == LeaseState::active && !w.programs.contains(lease.id) && lease.id != waits)
          w.attach(lease.id);
    }
    EXPECT_EQ(w.states(waits), "active");
    EXPECT_GT(*info.eta, (w.now - from) / 2);
    EXPECT_LT(*info.eta, (w.now - from) * 2);
  }
}

TEST(Projection, PromisesNothingByPausesThatMayFail) {
  Card w;
  w.ram = {4 * GiB, std::nullopt};
  const LeaseId batch = w.start(20 * GiB, Tier::batch), urgent = w.start(10 * GiB, Tier::interactive, "infer");
  EXPECT_FALSE(w.info(urgent).eta) << "host memory is too small";
  EXPECT_SAYS(w.info(urgent).basis, to_string(batch) + " (train, ana): its pause could not begin");

  Card late;
  late.start(20 * GiB, Tier::batch);
  const LeaseId waits = late.start(10 * GiB, Tier::interactive, "infer");
  const Duration before = *late.info(waits).eta;
  late.now = late.now + 2s;
  EXPECT_LE(*late.info(waits).eta, before - 2s) << "time that is over is not to come";
  late.now = late.now + 10min;
  EXPECT_FALSE(late.info(waits).eta);
  EXPECT_SAYS(late.info(waits).basis, "longer than it should");
}

TEST(VictimPlan, HasNoVictimThatHostMemoryDoesNotTake) {
  Card w;
  w.rules.ledger_limit = 12 * GiB;
  const LeaseId batch = w.start(20 * GiB, Tier::batch), urgent = w.start(10 * GiB, Tier::interactive, "infer");
  EXPECT_EQ(w.state.preemption.plans.size(), 0U) << "nobody is asked in vain";
  EXPECT_FALSE(w.info(urgent).eta);
  const PreemptionRequest by{1000, true};
  const VictimPlan room = explain::victim_plan(w.state, w.rules, w.at(urgent), by, w.now);
  EXPECT_FALSE(room.found);
  ASSERT_EQ(room.ineligible.size(), 1U);
  EXPECT_EQ(room.ineligible[0].lease, batch);
  EXPECT_EQ(room.ineligible[0].code, IneligibleCode::obstacle);
  EXPECT_SAYS(room.ineligible[0].why, "12.0 GiB");
  EXPECT_FALSE(w.accepts(Preempt{urgent, 0, by})) << "no word is taken for it";
  w.rules.ledger_limit = 20 * GiB;
  EXPECT_TRUE(explain::victim_plan(w.state, w.rules, w.at(urgent), {}, w.now).found);
}

TEST(VictimPlan, IsFoundForLaterWhileTheVictimResumes) {
  Card w;
  const LeaseId back = resuming(w, Tier::standard);
  w.rules.automatic = false;
  const LeaseId next = w.queue(10 * GiB, Tier::standard, "next");
  const PreemptionRequest by{1000, false};
  const VictimPlan room = explain::victim_plan(w.state, w.rules, w.at(next), by, w.now);
  ASSERT_TRUE(room.found);
  EXPECT_EQ(room.victims.front().lease, back);
  EXPECT_EQ(room.victims.front().bytes, 20 * GiB) << "what it will hold, not what it holds yet";
  EXPECT_SAYS(room.wait_for, "lease-1 (back, ana): it is resuming, for about ");
  ASSERT_TRUE(room.wait);
  EXPECT_GT(*room.wait, Duration{});
  ASSERT_TRUE(w.accepts(Preempt{next, 0, by}));
  EXPECT_SAYS(w.reason(next, ReasonKind::preemption_requested).text("later"), "lease-1");
  EXPECT_EQ(w.states(next), "queued");
  w.obey();
  EXPECT_EQ(w.states(next, back), "active paused");
}

TEST(VictimPlan, IsFoundForLaterAfterAPassingObstacle) {
  Card w;
  w.rules.automatic = false;
  w.ram = {4 * GiB, std::nullopt};
  const LeaseId first = w.start(20 * GiB, Tier::standard, "first"), next = w.queue(10 * GiB, Tier::standard, "next");
  const PreemptionRequest by{1000, false};
  w.step(Preempt{next, 0, by});
  const VictimPlan room = explain::victim_plan(w.state, w.rules, w.at(next), by, w.now);
  EXPECT_TRUE(room.found);
  EXPECT_FALSE(room.wait) << "who says that it can then?";
  EXPECT_SAYS(room.wait_for, "host memory");
  w.ram = plenty;
  EXPECT_TRUE(w.accepts(Preempt{next, 0, by}));
  w.live(15s);
  EXPECT_EQ(w.states(next, first), "active paused");
}

TEST(Projection, AgreesWithADryRunWhereManyAreEnded) {
  for (int count = 1; count <= 6; ++count) {
    Card w;
    for (int i = 0; i < count; ++i) w.submit(pinned_spot(w, Bytes{23 * GiB.count / count}), true);
    const Lease large = w.want(20 * GiB, Tier::standard, "large");
    const auto thought = explain::dry_run(w.state, w.rules, Submit{large, true}, w.now);
    ASSERT_TRUE(thought.has_value());
    EXPECT_EQ(thought->would, explain::Would::preempt);
    const LeaseId asks = w.submit(large, true);
    for (int i = 0; i < 3 && w.state_of(asks) == LeaseState::queued; ++i) w.live(1s);
    EXPECT_EQ(w.state_of(asks), LeaseState::active) << count;
  }
}

TEST(Projection, EndsByTheLongestRunOnceTheMedianIsOver) {
  World w;
  w.rules.automatic = false;
  w.snapshot({gpu(0, 24 * GiB)});
  for (const Duration run : {10s, 20s, 60s}) {
    const LeaseId id = w.run(GiB, 900);
    w.pass(run);
    w.step(ProgramEnded{id, 0, false});
    w.snapshot({gpu(0, 24 * GiB)});
  }
  w.run(20 * GiB, 100);
  const LeaseId waits = w.submit(20 * GiB);
  w.pass(25s);
  w.snapshot({gpu(0, 24 * GiB)});
  EXPECT_EQ(w.info(waits).eta, 35s);
  EXPECT_SAYS(w.info(waits).basis,
              "longer than the median of 3 earlier runs of 'train' (20 s); its longest run took 1 min");
}

TEST(Projections, AreMadeOnceForEachState) {
  OneCard w;
  explain::Projections all;
  const auto first = all.of(w.state, w.rules, w.now);
  EXPECT_EQ(all.of(w.state, w.rules, w.now), first);
  w.submit(GiB);
  EXPECT_NE(all.of(w.state, w.rules, w.now), first);
}

}  // namespace
}  // namespace sublet::core::testing
