// SPDX-License-Identifier: Apache-2.0
// The time limit of a lease stands still from the order of its pause until its program runs again.
#include "core/testing/two_leases.h"

#include <functional>

namespace sublet::core::testing {
namespace {

struct Case {
  const char* what;
  std::function<void(TwoLeases&)> pause;  // pauses the victim, and brings it back
  Duration left = 40min;                  // of one hour, after it ran for 20 minutes
};

void come_back(TwoLeases& w) {
  w.step(Release{w.waiter});
  w.step(Resume{w.victim});
  w.measure({});
  w.pass(1min);
  w.unparked();
}

const Case cases[] = {
    {"a long pause",
     [](TwoLeases& w) {
       w.settle();
       w.pass(3h);
       come_back(w);
     }},
    {"a restart of the daemon",
     [](TwoLeases& w) {
       w.settle();
       w.pass(30min);
       w.restart();
       w.pass(30min);
       come_back(w);
     }},
    {"a sleep of the machine",
     [](TwoLeases& w) {
       w.settle();
       w.now = w.now + 5h;
       w.step(ClockGap{.asleep = 5h});
       come_back(w);
     }},
    {"a daemon that stood still",
     [](TwoLeases& w) {
       w.settle();
       w.now = w.now + 2h;
       w.step(ClockGap{.stood_still = 2h});
       come_back(w);
     }},
    {"a pause that is undone",
     [](TwoLeases& w) {
       w.pause();
       w.pass(10s);
       w.step(AttemptEvent{w.victim, Parked{false, "the driver says 2"}});
       w.pass(20s);
       w.unparked();
     }},
    {"a renewal during the pause",
     [](TwoLeases& w) {
       w.settle();
       w.pass(2h);
       ASSERT_TRUE(w.accepts(Renew{w.victim, 0, 30min}));
       w.pass(2h);
       come_back(w);
     },
     30min},
};

TEST(Clock, ALeaseHasAfterAPauseWhatWasLeftWhenThePauseBegan) {
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    TwoLeases w;
    w.now = *w.at(w.victim).granted_at + 20min;
    w.step(Tick{});
    each.pause(w);
    ASSERT_EQ(w.states(w.victim), "active");
    ASSERT_EQ(w.at(w.victim).time_left(w.now), each.left);
    w.measure(9 * GiB);
    w.pass(each.left - 1s);
    EXPECT_EQ(w.states(w.victim), "active");
    w.pass(2s);
    EXPECT_EQ(w.told(w.victim).end_reason, EndReason::expired);
  }
}

TEST(Clock, APauseIsReportedToAllWhoCountTime) {
  TwoLeases w;
  w.settle();
  const Time ordered = w.at(w.victim).parking->since;
  w.pass(1h);
  come_back(w);
  ASSERT_EQ(w.last.resumed.size(), 1U);
  EXPECT_EQ(w.last.resumed[0].lease, w.victim);
  EXPECT_EQ(w.last.resumed[0].stood_still, w.now - ordered);
  EXPECT_EQ(w.last.resumed[0].cause, PauseCauseKind::owner_request);
}

TEST(Clock, ALeasePausedByAnEarlierVersionStartsItsTimeAnew) {
  TwoLeases w;
  w.settle();
  std::vector<Lease> stored = w.stored();
  for (Lease& lease : stored)
    if (lease.id == w.victim) lease.expires_at.reset();
  w.state = State::load(stored, {}, w.state.leases.last_id, w.rules, w.now);
  come_back(w);
  EXPECT_EQ(w.at(w.victim).time_left(w.now), 1h);
}

}  // namespace
}  // namespace sublet::core::testing
