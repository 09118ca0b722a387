// SPDX-License-Identifier: Apache-2.0
// In safe mode what is there goes on, and nothing new begins.
#include "core/testing/ideal_executor.h"
#include "core/testing/two_leases.h"

namespace sublet::core::testing {
namespace {

const SafeMode safe{{1'790'000'000'000'000'000}, "it crashed 3 times within 1 min"};

void refused(const Result<LeaseId>& outcome) {
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, Code::Unavailable);
  EXPECT_SAYS(outcome.error().detail, "safe mode until 2026-09-21T14:13:20.000Z: it crashed 3 times");
  EXPECT_SAYS(outcome.error().hint, "try again after 2026-09-21T14:13:20.000Z");
}

TEST(SafeMode, RefusesWhatIsNewAndLetsGoOnWhatIsThere) {
  TwoLeases w;
  const LeaseId token = w.submit(GiB);
  w.rules.safe_mode = safe;
  refused(w.ask(wish(GiB)));
  refused(w.pause());
  refused(w.resume());
  refused(w.step(Resize{w.victim, 0, 12 * GiB}).outcome);
  refused(w.step(Preempt{w.waiter}).outcome);
  EXPECT_TRUE(w.accepts(Renew{token, 0, 5min}));
  EXPECT_EQ(w.at(token).expires_at, w.now + 5min);
  EXPECT_TRUE(w.accepts(Release{token}));
  EXPECT_TRUE(w.gone(token));
  EXPECT_TRUE(w.accepts(Release{.lease = w.victim, .stop = true}));
  EXPECT_EQ(w.signals(w.victim, false), 1) << "stopping works";
  w.step(ProgramEnded{w.victim, 0, false});
  EXPECT_EQ(w.told(w.victim).state, LeaseState::ended);
  EXPECT_EQ(w.ordered<Park>(), 0);
}

TEST(SafeMode, WhoWaitsKnowsWhyAndHasItsTurnAfterwards) {
  TwoLeases w;
  w.rules.safe_mode = safe;
  w.step(ProgramEnded{w.victim, 0, false});
  w.measure({});
  w.pass(1min);
  w.measure({});
  EXPECT_EQ(w.states(w.waiter), "queued") << "although there is room";
  const explain::QueueInfo info = w.info(w.waiter);
  EXPECT_SAYS(info.basis, "in safe mode until");
  EXPECT_FALSE(info.eta);
  EXPECT_SAYS(explain::what_would_help(w.state, w.rules, w.at(w.waiter), w.now).front(), "try again after");
  w.rules.safe_mode.reset();
  w.step(Tick{});
  EXPECT_EQ(w.states(w.waiter), "active");
}

TEST(SafeMode, NobodyYieldsOrComesBack) {
  Card w;
  const LeaseId batch = w.start(20 * GiB, Tier::batch), urgent = w.start(10 * GiB, Tier::interactive, "infer");
  w.obey();
  ASSERT_EQ(w.states(batch), "paused");
  w.ram = {};
  w.attach(urgent);
  Lease wanted = w.want(20 * GiB, Tier::critical, "alarm");
  wanted.owner.kind = OwnerKind::token;  // it waits over a restart, too
  const LeaseId critical = w.submit(wanted);
  w.rules.safe_mode = safe;
  w.restart();  // the orders of before are forgotten
  w.obeyed = w.actions.size();
  w.ram = plenty;
  w.live(2min);
  EXPECT_EQ(w.states(urgent), "active") << "nobody makes room";
  w.quit(urgent);
  w.live(1min);
  EXPECT_EQ(w.states(batch), "paused") << "what is parked stays so";
  EXPECT_EQ(w.state.host.entries, 20 * GiB);
  w.rules.safe_mode.reset();
  w.live(5s);
  EXPECT_EQ(w.states(critical), "offered");
}

TEST(SafeMode, AMoveThatWasInterruptedIsTakenBackAfterwards) {
  TwoLeases w;
  w.pause();
  w.rules.safe_mode = safe;
  w.restart();
  w.pass(1min);
  w.measure(9 * GiB);
  EXPECT_EQ(w.states(w.victim), "pausing") << "it may be what the daemon falls over";
  EXPECT_EQ(w.ordered<Unpark>(), 0);
  w.rules.safe_mode.reset();
  w.step(Tick{});
  EXPECT_EQ(w.ordered<Unpark>(), 1);
  w.unparked();
  EXPECT_EQ(w.states(w.victim), "active");
}

}  // namespace
}  // namespace sublet::core::testing
