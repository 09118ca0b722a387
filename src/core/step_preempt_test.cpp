// SPDX-License-Identifier: Apache-2.0
#include "core/testing/ideal_executor.h"

namespace sublet::core::testing {
namespace {

TEST(Preemption, AHigherTierHasALowerOneYieldAndThatComesBack) {
  Card w;
  const LeaseId batch = w.start(20 * GiB, Tier::batch), urgent = w.start(10 * GiB, Tier::interactive, "infer");
  EXPECT_EQ(w.states(urgent), "queued");
  ASSERT_NE(plan_for(w.state, urgent), nullptr);
  EXPECT_SAYS(w.info(urgent).basis, "memory is being freed for it by pausing " + to_string(batch));
  EXPECT_LT(w.info(urgent).eta, 20s);
  w.obey();
  EXPECT_EQ(w.states(batch, urgent), "paused active");
  const PauseCause& cause = w.at(batch).parking->cause;
  EXPECT_EQ(cause.kind, PauseCauseKind::tier);
  EXPECT_EQ(cause.preemptor, urgent);
  EXPECT_EQ(cause.args.bytes("asked"), 10 * GiB);
  EXPECT_TRUE(w.at(batch).parking->resume_requested) << "it waits to come back";
  EXPECT_TRUE(w.state.preemption.plans.empty());
  w.attach(urgent);
  w.quit(urgent);
  EXPECT_EQ(w.states(batch), "active");
  EXPECT_EQ(w.state.host.entries, Bytes{});
}

TEST(Preemption, TheCheapestThatIsEnoughYields) {
  Card w;
  const LeaseId large = w.start(12 * GiB, Tier::batch, "large"), small = w.start(6 * GiB, Tier::batch, "small");
  const LeaseId tiny = w.start(4 * GiB, Tier::batch, "tiny");
  w.start(7 * GiB, Tier::interactive, "infer");
  w.obey();
  EXPECT_EQ(w.states(large, small, tiny), "active paused active") << "2 GiB are free, and 5 more are enough";
}

TEST(Preemption, NobodyYieldsWhoNeedNot) {
  const struct {
    const char* name;
    Tier tier;
    Pausable pausable;
    Duration ttl;
    Tier asks;
    bool automatic;
  } rows[] = {
      {"pinned", Tier::batch, Pausable::no, 10min, Tier::critical, true},
      {"of a higher tier", Tier::critical, Pausable::automatic, 10min, Tier::interactive, true},
      {"its end comes sooner than a pause", Tier::batch, Pausable::automatic, 3s, Tier::interactive, true},
      {"pauses are by request only", Tier::batch, Pausable::automatic, 10min, Tier::critical, false},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Card w;
    w.rules.automatic = row.automatic;
    Lease lease = w.want(20 * GiB, row.tier, "holder");
    lease.pausable = row.pausable;
    lease.ttl = row.ttl;
    const LeaseId holder = w.submit(lease, true);
    w.attach(holder);
    const LeaseId asks = w.start(10 * GiB, row.asks, "infer");
    if (row.ttl > 1min) w.live(200s);
    EXPECT_EQ(w.states(holder, asks), "active queued");
    EXPECT_TRUE(w.state.preemption.plans.empty());
    if (row.automatic) continue;
    ASSERT_TRUE(w.accepts(Preempt{asks, 0, PreemptionRequest{0, true}}));
    w.obey();
    EXPECT_EQ(w.states(holder, asks), "paused active");
  }
}

TEST(Preemption, OneAfterTheOtherAndWhatFreesUpIsKeptForThePreemptor) {
  Card w;
  const LeaseId a = w.start(8 * GiB, Tier::batch, "a"), b = w.start(8 * GiB, Tier::batch, "b"),
                c = w.start(8 * GiB, Tier::batch, "c");
  const LeaseId next = w.start(3 * GiB, Tier::batch, "d"), urgent = w.start(20 * GiB, Tier::interactive, "infer");
  while (w.state_of(urgent) != LeaseState::active && w.obeyed < w.actions.size()) {
    EXPECT_EQ(w.states(next), "queued") << "what frees up is kept for whom it was made";
    w.obey(1);
    const std::vector all{w.state_of(a), w.state_of(b), w.state_of(c)};
    EXPECT_LE(std::ranges::count(all, LeaseState::pausing), 1);
  }
  EXPECT_EQ(w.states(urgent, next), "active queued") << "it would delay the return of those that yielded";
}

TEST(Preemption, WhenThePreemptorGoesThoseWhoYieldedComeBack) {
  Card w;
  const LeaseId a = w.start(12 * GiB, Tier::batch, "a"), b = w.start(12 * GiB, Tier::batch, "b");
  const LeaseId urgent = w.start(20 * GiB, Tier::interactive, "infer");
  EXPECT_EQ(w.states(std::get<Park>(w.actions[w.obeyed]).lease), "pausing");
  w.step(Release{urgent});
  EXPECT_EQ(w.told(urgent).end_reason, EndReason::cancelled);
  w.obey();
  EXPECT_EQ(w.states(a, b), "active active");
  EXPECT_EQ(w.state.host.entries, Bytes{});
}

TEST(Preemption, WhoCannotBeParkedIsLeftAloneForAWhileAndTheNextIsAsked) {
  Card w;
  const LeaseId cheap = w.start(10 * GiB, Tier::batch, "cheap"), dear = w.start(12 * GiB, Tier::batch, "dear");
  const LeaseId urgent = w.start(8 * GiB, Tier::interactive, "infer");
  ASSERT_EQ(std::get<Park>(w.actions[w.obeyed++]).lease, cheap);
  w.obeyed = w.actions.size();
  w.step(AttemptEvent{cheap, Parked{false, "pid 102 is traced"}});
  EXPECT_EQ(w.states(cheap), "resuming") << "not verified is not active";
  w.obey();
  EXPECT_EQ(w.states(cheap, dear, urgent), "active paused active");
  EXPECT_TRUE(last_obstacle(w.state, cheap)->kind().blames);
}

// The second of two refuses to yield by itself.
struct Refusal : Card {
  LeaseId first = start(6 * GiB, Tier::batch, "first"), second = start(14 * GiB, Tier::batch, "second"), urgent;
  Refusal() {
    Cooperation how;
    how.residue = 32 * MiB;
    how.process = process(programs.at(second).first);
    step(Cooperate{second, 0, how});
    refusing.insert(second);
    live(30s);
    urgent = queue(22 * GiB, Tier::interactive, "urgent");
  }
  void obey_until(LeaseState wanted) {
    while (state_of(second) != wanted) obey(1);
  }
};

TEST(Preemption, WhatIsMadeByTheNextMethodHasBegunUnlessTheUndoTakesLong) {
  for (const bool late : {false, true}) {
    Refusal w;
    w.obey_until(LeaseState::pausing);
    w.obey(1);
    ASSERT_EQ(w.states(w.second), "resuming");
    ASSERT_EQ(w.state.preemption.plans.size(), 1u) << "it goes on";
    EXPECT_GT(w.state.preemption.plans.front().id, 0U);
    EXPECT_SAYS(w.info(w.urgent).basis, to_string(w.second));
    if (late) {
      w.step(AttemptEvent{w.second, Unparked{Unparked::How::not_yet, "it does not answer"}});
      EXPECT_TRUE(w.state.preemption.plans.empty());
      w.obeyed = w.actions.size();
      w.step(AttemptEvent{w.second, Unparked{Unparked::How::runs, {}, plenty}});
      EXPECT_EQ(w.states(w.second), "active") << "no other method is tried after that";
      continue;
    }
    w.obey(1);
    ASSERT_EQ(w.states(w.second), "pausing");
    ASSERT_EQ(w.state.preemption.plans.size(), 1u);
    EXPECT_GT(w.state.preemption.plans.front().id, 0U);
    w.live(30s);
    EXPECT_EQ(w.states(w.urgent), "active");
    EXPECT_EQ(w.at(w.second).parking->method, PauseMethod::driver);
    EXPECT_EQ(w.times_told(w.first, ReasonKind::paused), 1);
    EXPECT_EQ(w.times_told(w.first, ReasonKind::resumed), 0) << "nobody comes back meanwhile";
  }
}

TEST(Preemption, AUsersWordReachesTheUsersOwnProgramsOnly) {
  Card w;
  w.rules.automatic = false;
  const LeaseId other = w.theirs(1001, 10 * GiB, Tier::batch, "theirs");
  const LeaseId own = w.start(10 * GiB, Tier::critical), waiter = w.start(20 * GiB, Tier::interactive, "infer");
  // Pauses are by request only, and this request is not about the other user's program.
  EXPECT_EQ(w.refusal(Preempt{waiter, 0, PreemptionRequest{1000, false}}).code, Code::CannotPreempt);
  const LeaseId small = w.start(12 * GiB, Tier::standard, "infer");
  EXPECT_EQ(w.refusal(Preempt{small, 0, PreemptionRequest{4711, false}}).code, Code::CannotPreempt) << "not his";
  ASSERT_TRUE(w.accepts(Preempt{small, 0, PreemptionRequest{1000, false}}));
  w.obey();
  EXPECT_EQ(w.states(own), "paused") << "of a higher tier, and not back in the room that it has made";
  EXPECT_EQ(w.states(other, small), "active active");
}

TEST(Preemption, WhatTheRulesGiveAWaiterAUsersWordDoesNotTakeAway) {
  Card w;
  w.rules.min_residency = 1h;
  const LeaseId other = w.theirs(1001, 10 * GiB, Tier::batch, "theirs");
  const LeaseId own = w.start(10 * GiB, Tier::interactive), waiter = w.start(20 * GiB, Tier::interactive, "infer");
  ASSERT_EQ(plan_for(w.state, waiter), nullptr) << "the lower tier alone is not enough";
  ASSERT_TRUE(w.accepts(Preempt{waiter, 0, PreemptionRequest{1000, false}}));
  w.obey();
  EXPECT_EQ(w.states(own, other), "paused paused") << "by the word, and by its tier";
}

TEST(Preemption, ASetThatTheLedgerDoesNotTakeIsNotBegun) {
  Card w;
  w.rules.ledger_limit = 12 * GiB;
  const LeaseId a = w.start(9 * GiB, Tier::batch, "a"), b = w.start(9 * GiB, Tier::batch, "b");
  const LeaseId urgent = w.start(20 * GiB, Tier::interactive, "infer");
  w.live(2min);
  EXPECT_EQ(w.ordered<Park>(), 0) << "each alone fits, both do not";
  EXPECT_EQ(w.states(a, b), "active active");
  EXPECT_SAYS(w.info(urgent).basis, "no more than 12.0 GiB of parked bytes now, and they hold 18.0 GiB");
  w.rules.ledger_limit = 18 * GiB;
  w.live(2s);
  EXPECT_EQ(w.states(urgent), "active");
}

TEST(Preemption, ASetThatTheLedgerTakesIsPreferred) {
  Card w;
  w.rules.ledger_limit = 18 * GiB;  // 13.5 of it are one user's share
  const LeaseId a = w.theirs(1001, 7 * GiB, Tier::batch, "a"), b = w.theirs(1001, 7 * GiB, Tier::batch, "b");
  const LeaseId c = w.theirs(1002, 10 * GiB, Tier::batch, "c"), urgent = w.start(13 * GiB, Tier::interactive, "infer");
  w.live(30s);
  EXPECT_EQ(w.states(urgent, c), "active paused") << "the two small ones are cheaper, and too much for their user";
  EXPECT_NE(w.state_of(a), w.state_of(b));
  EXPECT_EQ(w.ordered<Park>(), 2);
}

// The ledger entry of a victim is corrected to its parked bytes before the next victim is asked.
TEST(Preemption, OneAfterTheOtherMoreThanTheLedgerTakesAtOnce) {
  Card w;
  w.rules.ledger_limit = 13 * GiB;
  const LeaseId a = w.start(11 * GiB, Tier::batch, "a"), b = w.start(11 * GiB, Tier::batch, "b");
  for (const LeaseId id : {a, b}) w.programs.at(id).second = 1 * GiB;
  w.measure();
  const LeaseId urgent = w.start(20 * GiB, Tier::interactive, "infer");
  w.live(30s);
  EXPECT_EQ(w.states(urgent), "active");
  EXPECT_EQ(w.ordered<Park>(), 2);
}

TEST(Preemption, HostMemoryIsWeighedForAllWhoAreToYield) {
  Card w;
  w.ram = {13 * GiB, std::nullopt};
  w.start(9 * GiB, Tier::batch, "a"), w.start(9 * GiB, Tier::batch, "b");
  w.start(20 * GiB, Tier::interactive, "infer");
  w.obey();
  EXPECT_EQ(w.ordered<Park>(), 0) << "11 GiB may be taken, by one of them";
}

// Residues are in the headroom first: otherwise no lease on a whole card could be paused for another.
TEST(Preemption, WholeCardsYieldToEachOtherAndComeBack) {
  Card w;
  w.rules.headroom = 256 * MiB;
  const Bytes whole = 24 * GiB - w.rules.headroom;
  const LeaseId batch = w.start(whole, Tier::batch), urgent = w.start(whole, Tier::interactive, "infer");
  w.obey();
  EXPECT_EQ(w.states(batch, urgent), "paused active");
  EXPECT_EQ(w.free(0), Bytes{});
  w.attach(urgent);
  w.live(30s);
  EXPECT_EQ(w.states(batch), "paused") << "there is no room, and nobody is promised any";
  w.quit(urgent);
  EXPECT_EQ(w.states(batch), "active");
  EXPECT_EQ(w.free(0), Bytes{});
}

TEST(Preemption, MoreThanTheHeadroomIsNotKeptInIt) {
  Card w;
  w.rules.headroom = 256 * MiB;
  const Bytes whole = 24 * GiB - w.rules.headroom;
  for (int i = 0; i < 6; ++i) w.start(3900 * MiB, Tier::batch, "job" + std::to_string(i));
  const LeaseId all = w.start(whole, Tier::interactive, "infer");
  w.live(30s);
  EXPECT_EQ(w.ordered<Park>(), 0) << "six of them keep 384 MiB, of which 128 are in nobody's headroom";
  EXPECT_EQ(w.states(all), "queued");
  const LeaseId less = w.start(whole - 130 * MiB, Tier::interactive, "infer");
  w.live(60s);
  EXPECT_EQ(w.states(less), "active");
  EXPECT_GE(w.free(0), Bytes{});
}

// Its program imports for a while before it takes anything, or is a shell between two steps.
TEST(Preemption, WhoseProgramHasNothingOnTheCardYetIsAskedOnceItHas) {
  Card w;
  const LeaseId early = w.imports(20 * GiB, Tier::batch), urgent = w.start(10 * GiB, Tier::interactive, "infer");
  w.live(5s);
  EXPECT_EQ(w.states(early, urgent), "active queued") << "there is nothing to park";
  EXPECT_FALSE(w.info(urgent).eta) << "and nobody knows when there will be";
  w.programs[early] = {50, 6 * GiB};
  w.live(1s);
  EXPECT_EQ(w.states(early, urgent), "paused active");
}

TEST(Preemption, WhoWaitsToGrowDoesNotWaitForItsOwnEnd) {
  Card w;
  Lease asked = w.want(8 * GiB, Tier::interactive, "tree_changing");
  asked.ttl = 3s;
  const LeaseId grows = w.submit(asked, true);
  w.attach(grows);
  const LeaseId below = w.start(14 * GiB, Tier::batch, "below");
  ASSERT_TRUE(w.accepts(Resize{grows, 0, 14 * GiB, true}));
  EXPECT_EQ(w.states(below), "pausing");
}

}  // namespace
}  // namespace sublet::core::testing
