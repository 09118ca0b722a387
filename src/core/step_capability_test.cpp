// SPDX-License-Identifier: Apache-2.0
#include "core/testing/ideal_executor.h"
#include "core/testing/world.h"
#include "explain/explain.h"

namespace sublet::core::testing {
namespace {

// -------------------------------------------------------------------------------- another rank or limit

TEST(Amend, ChangesLimitsAndTellsThemOnce) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  EXPECT_TRUE(w.accepts(Amend{.lease = id, .ceiling = 7 * GiB, .soft_limit = 6 * GiB}));
  EXPECT_EQ(w.told(id).ceiling, 7 * GiB);
  EXPECT_EQ(w.reason(id, ReasonKind::amended).bytes("soft"), 6 * GiB);
  EXPECT_TRUE(w.accepts(Amend{.lease = id, .ceiling = 7 * GiB}));
  EXPECT_TRUE(w.last.changed.empty()) << "nothing is new";
  EXPECT_TRUE(w.accepts(Amend{.lease = id, .ceiling = Bytes{}}));
  EXPECT_TRUE(w.reason(id, ReasonKind::amended).flag("no_ceiling"));
  EXPECT_EQ(w.at(id).soft_limit, 6 * GiB) << "an unset field stays";
}

TEST(Amend, MovesAWaitingLeaseInTheQueue) {
  OneCard w;
  w.submit(20 * GiB);
  const LeaseId first = w.submit(20 * GiB), second = w.submit(20 * GiB);
  EXPECT_EQ(w.info(second).place, 2U);
  w.step(Amend{.lease = second, .priority = 50});
  EXPECT_EQ(w.info(second).place, 1U);
  w.step(Amend{.lease = first, .tier = Tier::interactive});
  EXPECT_EQ(w.info(first).place, 1U);
}

TEST(Amend, MakesAPausableLeaseOneThatIsEndedForOthers) {
  Card w;
  const LeaseId stack = w.start(20 * GiB, Tier::standard, "stack");
  w.step(Amend{.lease = stack, .tier = Tier::spot, .pausable = Pausable::no});
  w.start(10 * GiB, Tier::batch);
  EXPECT_EQ(w.at(stack).end_reason, EndReason::revoked) << "it would be paused without this change";
}

TEST(Amend, GivesALeaseToAnotherUser) {
  OneCard w;
  Lease wanted = wish(6 * GiB, "stack");
  wanted.tag = "stack-chat";
  const LeaseId id = w.submit(wanted);
  EXPECT_TRUE(w.accepts(Amend{.lease = id, .charged = Charged{1001, "bea", "bea"}}));
  EXPECT_EQ(w.told(id).user, "bea");
  EXPECT_EQ(find_tag(w.state, 1001, "stack-chat")->id, id);
  EXPECT_EQ(find_tag(w.state, wanted.uid, "stack-chat"), nullptr) << "the first user may use the tag again";
  EXPECT_EQ(w.reason(id, ReasonKind::amended).text("user"), "bea");
  const LeaseId other = w.submit(wanted);
  EXPECT_EQ(w.refusal(Amend{.lease = other, .charged = Charged{1001, "bea", "bea"}}).code, Code::InUse);
  EXPECT_EQ(w.at(other).uid, wanted.uid);
}

TEST(Amend, OfAnEndedLeaseIsStale) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.step(ProgramEnded{id, 0});
  EXPECT_EQ(w.refusal(Amend{.lease = id, .priority = 5}).code, Code::Stale);
}

// -------------------------------------------------------------------------------- over the ceiling

TEST(End, OverTheCeilingGivesTheProgramTwoSeconds) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.measure({uses(100, 7 * GiB, id)});
  w.step(End{.lease = id, .args = args("used", 7 * GiB, "device", "gpu0", "ceiling", 6 * GiB)});
  EXPECT_EQ(w.told(id).end_reason, EndReason::over_limit);
  EXPECT_EQ(w.signals(id, false), 1);
  EXPECT_EQ(w.free(0), 17 * GiB) << "charged until measured gone";
  w.pass(1900ms);
  EXPECT_EQ(w.signals(id, true), 0);
  w.pass(100ms);
  EXPECT_EQ(w.signals(id, true), 1);
  EXPECT_SAYS(text_of({id, w.now, ReasonKind::over_ceiling, w.reason(id, ReasonKind::over_ceiling)}),
              "over_limit: its program used 7.0 GiB on gpu0, more than its ceiling of 6.0 GiB; its program is asked to "
              "end, and is killed if it still lives after 2 s");
}

TEST(End, FarOverTheCeilingKillsAtOnce) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.step(End{.lease = id, .args = args("used", 9 * GiB, "device", "gpu0", "ceiling", 6 * GiB), .kill = true});
  EXPECT_EQ(w.signals(id, true), 1);
  w.pass(1min);
  EXPECT_EQ(w.signals(id, true), 1);
}

TEST(End, TakingMemoryInsteadOfEndingEndsTheGrace) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.step(End{.lease = id, .args = args("used", 6 * GiB + MiB, "device", "gpu0", "ceiling", 6 * GiB)});
  w.pass(200ms);
  const auto grew = args("used", 6 * GiB + 40 * MiB, "device", "gpu0", "ceiling", 6 * GiB);
  w.step(End{.lease = id, .args = grew, .kill = true});
  EXPECT_EQ(w.signals(id, true), 1);
  EXPECT_SAYS(
      text_of({id, w.now, ReasonKind::killing, w.reason(id, ReasonKind::killing)}),
      "its program was asked to end 200 ms ago and still lives, and uses 6184 MiB on gpu0, more than its ceiling "
      "of 6144 MiB: it is killed");
  EXPECT_EQ(w.refusal(End{.lease = id, .kill = true}).code, Code::Stale) << "it is killed only once";
}

TEST(End, KillsAProgramThatAllocatesWhileItsPauseBegins) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.step(Pause{id, 0, {}, plenty});
  ASSERT_EQ(w.told(id).state, LeaseState::pausing);
  EXPECT_EQ(w.refusal(End{.lease = id}).code, Code::Stale) << "it cannot react to SIGTERM";
  w.step(End{.lease = id, .args = args("used", 9 * GiB, "device", "gpu0", "ceiling", 6 * GiB), .kill = true});
  EXPECT_EQ(w.told(id).end_reason, EndReason::over_limit);
  EXPECT_EQ(w.signals(id, true), 1);
}

TEST(End, OfALeaseThatIsNotActiveIsStale) {
  OneCard w;
  w.submit(20 * GiB);
  EXPECT_EQ(w.refusal(End{.lease = w.submit(20 * GiB)}).code, Code::Stale);
}

// -------------------------------------------------------------------------------- memory for the next start

struct Kept : OneCard {
  LeaseId before = run(16 * GiB, 100), waiter = submit(16 * GiB);
  Kept() {
    measure({uses(100, 12 * GiB, before)});
    step(ProgramEnded{before, 1});
    step(Keep{before, now + 10s});
    pass(1s);
  }
  LeaseId start(Bytes vram) {
    Submit next{wish(vram)};
    next.successor_of = before;
    next.held = true;
    const auto id = step(next).outcome;
    EXPECT_TRUE(id);
    return *id;
  }
};

TEST(Keep, HoldsTheMemoryForTheNextStartBeforeAllWaiters) {
  Kept w;
  w.measure();
  EXPECT_EQ(w.states(w.before, w.waiter), "ended queued");
  EXPECT_EQ(w.free(0), 8 * GiB);
  const LeaseId next = w.start(16 * GiB);
  EXPECT_EQ(w.states(next, w.waiter), "active queued");
  EXPECT_TRUE(w.gone(w.before));
  EXPECT_EQ(w.free(0), 8 * GiB);
}

TEST(Keep, EndsAfterItsTime) {
  Kept w;
  w.measure();
  EXPECT_EQ(explain::what_would_help(w.state, w.rules, w.at(w.before), w.now).at(0),
            "its memory stays reserved for the next start of its program, for at most 9 s");
  w.pass(9s);
  EXPECT_FALSE(w.at(w.before).kept_until);
  w.measure();
  EXPECT_EQ(w.states(w.before, w.waiter), "gone offered");
}

TEST(Keep, GivesNothingThatIsNotMeasuredFree) {
  Kept w;
  w.measure({uses(100, 12 * GiB, w.before)});
  const LeaseId next = w.start(16 * GiB);
  EXPECT_EQ(w.states(next, w.waiter), "queued queued");
  w.measure();
  EXPECT_EQ(w.states(w.before, w.waiter, next), "gone offered queued") << "it stands behind the others";
}

TEST(Keep, DoesNotServeALargerStart) {
  Kept w;
  w.measure();
  const LeaseId next = w.start(23 * GiB);
  EXPECT_EQ(w.states(next), "queued");
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::offered) << "nothing is kept any more";
}

TEST(Keep, IsGivenUpOnRequestAndSurvivesARestart) {
  Kept w;
  w.restart();
  w.step(ProgramEnded{w.before, {}});  // the engine reports it again
  w.measure();
  EXPECT_EQ(w.free(0), 8 * GiB);
  w.step(Keep{w.before, Time{}});
  w.measure();
  EXPECT_TRUE(w.gone(w.before));
}

}  // namespace
}  // namespace sublet::core::testing
