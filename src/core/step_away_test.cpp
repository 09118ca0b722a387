// SPDX-License-Identifier: Apache-2.0
#include "core/testing/world.h"
#include "state/blocked.h"

namespace sublet::core::testing {
namespace {

using namespace std::chrono_literals;

// One card of 24 GiB and a program that uses 9 of its 10 GiB.
struct Alone : World {
  LeaseId lease;
  Alone() {
    snapshot({gpu(0, 24 * GiB)});
    lease = run(10 * GiB, 7);
    measure(9 * GiB);
  }
  void measure(Bytes used, Bytes outside = {}, int pid = 99) {
    now = now + 20ms;
    std::vector<ProcessUse> processes;
    if (used > Bytes{}) processes.push_back(uses(7, used, lease));
    if (outside > Bytes{}) processes.push_back(uses(pid, outside));
    if (outside > Bytes{}) processes.back().name = "game";
    snapshot({gpu(0, 24 * GiB, std::move(processes))});
  }
  Result<LeaseId> pause(HostMemory host = plenty) { return step(Pause{lease, 0, {}, host}).outcome; }
  void settle() {
    ASSERT_TRUE(pause().has_value());
    step(AttemptEvent{lease, Parked{true, {}, 9 * GiB}});
    measure({}), measure({});
    ASSERT_EQ(states(lease), "paused");
  }
  std::optional<Blocked> blocked() const { return what_blocks(state, rules, at(lease), now); }
  auto times_blocked() const { return times_told(lease, ReasonKind::blocked_by_processes); }
};

// -------------------------------------------------------------------------------- unleased processes in its place

TEST(Away, TheUnleasedProcessInItsPlaceIsNamedWithItsBytes) {
  Alone w;
  w.settle();
  w.measure({}, 20 * GiB);
  EXPECT_FALSE(w.blocked()) << "it does not want back yet";
  w.step(Resume{w.lease});
  const auto blocked = w.blocked();
  ASSERT_TRUE(blocked);
  EXPECT_EQ(blocked->code, Code::ResumeBlocked);
  ASSERT_EQ(blocked->unleased_processes.size(), 1U);
  EXPECT_EQ(blocked->unleased_processes[0].process, process(99));
  EXPECT_EQ(blocked->unleased_processes[0].bytes, 20 * GiB);
  EXPECT_SAYS(w.reason(w.lease, ReasonKind::resume_queued).parts("holders").at(0).what, "pid 99");
  const ReasonArgs& why = w.reason(w.lease, ReasonKind::blocked_by_processes);
  EXPECT_EQ(why.text("problem"), "ResumeBlocked");
  EXPECT_EQ(why.parts("processes"), (std::vector<ReasonPart>{{"pid 99 (game, without a lease)", 20 * GiB}}));
  w.measure({}, 20 * GiB), w.measure({}, 19 * GiB);
  EXPECT_EQ(w.times_blocked(), 1) << "once for each unleased process";
  w.measure({}, 19 * GiB, 98);
  EXPECT_EQ(w.times_blocked(), 2);
  EXPECT_EQ(w.ordered<Unpark>(), 0);
  w.measure({});
  EXPECT_EQ(w.states(w.lease), "resuming") << "by itself";
  EXPECT_FALSE(w.blocked());
}

TEST(Away, AnotherLeaseOrBytesOfNoListedProcessAreNoUnleasedProcess) {
  Alone w;
  w.settle();
  w.rules.automatic = false;
  ASSERT_EQ(w.states(w.submit(wish(20 * GiB))), "active");
  w.step(Resume{w.lease});
  w.measure({}, GiB);
  EXPECT_FALSE(w.blocked()) << "without the unleased process it would not fit either";
  EXPECT_EQ(w.times_blocked(), 0);

  Alone unlisted;
  unlisted.settle();
  unlisted.snapshot({gpu(0, 24 * GiB, {}, 20 * GiB)});
  unlisted.step(Resume{unlisted.lease});
  EXPECT_EQ(unlisted.states(unlisted.lease), "paused");
  EXPECT_FALSE(unlisted.blocked());
}

TEST(Away, ARestoreThatFindsNoRoomNamesWhoTookIt) {
  Alone w;
  w.settle();
  w.step(Resume{w.lease});
  ASSERT_EQ(w.states(w.lease), "resuming");
  w.measure({}, 20 * GiB);
  EXPECT_FALSE(w.blocked()) << "it may be restored all the same";
  w.step(AttemptEvent{w.lease, Unparked{Unparked::How::not_yet, "no room", {}, ObstacleCode::no_room}});
  ASSERT_TRUE(w.blocked());
  EXPECT_EQ(w.blocked()->code, Code::ResumeBlocked);
  EXPECT_EQ(w.reason(w.lease, ReasonKind::blocked_by_processes).text("needs"), "restore");
  w.step(AttemptEvent{w.lease, Unparked{Unparked::How::not_yet, "the driver is busy"}});
  EXPECT_FALSE(w.blocked()) << "that is no want of room";
}

TEST(Away, WhoWaitsForWhatAnUnleasedProcessTookIsToldSoAndNotTheVictimBlamed) {
  Alone w;
  Lease urgent = wish(20 * GiB, "infer");
  urgent.tier = Tier::critical;
  const LeaseId waiter = w.submit(urgent, true);
  ASSERT_EQ(w.states(w.lease), "pausing");
  w.step(AttemptEvent{w.lease, Parked{true, {}, 9 * GiB}});
  w.measure({}, 8 * GiB), w.measure({}, 8 * GiB);
  EXPECT_EQ(w.trust("train"), 1) << "it did yield";
  EXPECT_EQ(w.reason(waiter, ReasonKind::blocked_by_processes).text("problem"), "External");
}

// -------------------------------------------------------------------------------- nobody left

struct Token : World {
  LeaseId lease;
  Token() {
    rules.orphan_after = 1h;
    snapshot({gpu(0, 24 * GiB)});
    Lease asked = wish(10 * GiB);
    asked.ttl = 60s;
    lease = submit(asked);
    Cooperation how;
    how.way = CooperationWay::webhook;
    how.address = "http://127.0.0.1:1/";
    step(Cooperate{lease, 0, how});
    step(Pause{lease, 0, {}, plenty});
    step(AttemptEvent{lease, Parked{true, {}, Bytes{}}});
    for (int i = 0; i < 2; ++i) now = now + 20ms, snapshot({gpu(0, 24 * GiB)});
    EXPECT_EQ(state_of(lease), LeaseState::paused);
  }
  void tell(bool lives) { step(LivenessReport{lease, lives}); }
  void fall_asleep(Duration d) {
    now = now + d;
    step(ClockGap{d});
  }
};

TEST(Orphan, AParkedTokenLeaseWithoutAProcessEnds) {
  Token w;
  w.pass(10h);
  EXPECT_EQ(w.states(w.lease), "paused") << "its time stands still, and nobody said that it is empty";
  w.tell(true);
  w.pass(10h);
  EXPECT_EQ(w.states(w.lease), "paused");
  w.tell(false);
  w.pass(59min);
  EXPECT_EQ(w.states(w.lease), "paused") << "counted from the last process";
  w.tell(false);
  w.pass(2min);
  EXPECT_TRUE(w.gone(w.lease));
  EXPECT_GE(w.reason(w.lease, ReasonKind::orphaned).duration("paused"), 21h);
  EXPECT_EQ(w.reason(w.lease, ReasonKind::orphaned).duration("empty"), w.rules.orphan_after);
}

// Only time counts for which no process is known to have lived. The pause before, in which one lived, does not count,
// nor do a sleep of the machine and the time before a daemon looked.
TEST(Orphan, OnlyTimeWithoutAProcessCounts) {
  Token w;
  w.pass(50min);
  w.restart();
  w.fall_asleep(10h);
  w.pass(20min);
  EXPECT_EQ(w.states(w.lease), "paused") << "nobody has looked yet";
  w.tell(false);
  w.pass(59min);
  EXPECT_EQ(w.states(w.lease), "paused") << "until it was seen somebody may have lived";
  w.tell(true);
  EXPECT_FALSE(w.told(w.lease).parking->orphaned_since);
  w.restart();
  w.tell(false);
  w.pass(59min);
  EXPECT_EQ(w.states(w.lease), "paused") << "it begins anew when somebody lived";
  w.fall_asleep(10h);
  EXPECT_EQ(w.told(w.lease).parking->orphaned_since, w.now - 59min) << "and that is stored";
  EXPECT_EQ(w.states(w.lease), "paused");
  w.pass(2min);
  EXPECT_EQ(w.states(w.lease), "gone");
}

TEST(Orphan, AnEmptyLeaseIsReleasedByForceAtOnce) {
  Token w;
  EXPECT_FALSE(w.accepts(Release{.lease = w.lease, .force = true})) << "nobody said that it is empty";
  w.tell(false);
  EXPECT_FALSE(w.accepts(Release{.lease = w.lease})) << "its owner may be mistaken";
  w.step(Release{.lease = w.lease, .force = true});
  EXPECT_EQ(w.states(w.lease), "gone");
}

TEST(Orphan, ProgramsOfTheirOwnAreNoOrphans) {
  Alone w;
  w.settle();
  EXPECT_FALSE(w.accepts(LivenessReport{w.lease, false}));
}

// -------------------------------------------------------------------------------- the ledger, and what a restart keeps

TEST(Ledger, OneUserMayNotFillItForAllOthers) {
  Alone w;
  w.rules.ledger_limit = 16 * GiB;
  w.rules.ledger_user_share = 0.5;
  ASSERT_TRUE(w.pause().has_value()) << "alone: all of it is there for this user";
  w.step(AttemptEvent{w.lease, Parked{false, "no"}});
  w.step(AttemptEvent{w.lease, Unparked{}});
  Lease theirs = wish(GiB);
  theirs.uid = 1001;
  theirs.user = "bob";
  w.submit(theirs);
  const Error refused = w.pause().error();
  EXPECT_EQ(refused.code, Code::HostMemory);
  EXPECT_SAYS(refused.detail, "0 B of the 8.0 GiB that one user may take (ana)");
  EXPECT_SAYS(refused.hint, "ledger.user_share");
  w.rules.ledger_user_share = 1;
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_EQ(ledger_of(w.state, 1000), 10 * GiB);
  EXPECT_EQ(ledger_of(w.state, 1001), Bytes{});
}

// The hint is about the limit that leaves least.
TEST(Ledger, NobodyIsParkedWhomHostMemoryDoesNotTake) {
  const struct {
    HostMemory host;
    Bytes limit;
    double max_pressure;
    std::string detail, hint;
  } rows[] = {
      {{4 * GiB, std::nullopt}, 64 * GiB, 0.1, "only 2.0 GiB more may be parked", "ledger.reserve"},
      {{64 * GiB, 2 * GiB}, 64 * GiB, 0.1, "the control group of its program may take 2.0 GiB", "memory.max"},
      {plenty, 2 * GiB, 0.1, "only 2.0 GiB more may be parked", "ledger.limit"},
      {plenty, 10 * GiB - MiB, 0.1, "9.9 GiB more may be", "`sublet resize lease-1 9.0GiB` gives back the rest; or"},
      {{64 * GiB, std::nullopt, false, 0.34}, 64 * GiB, 0.1, "for 34 %", "ledger.max_pressure"},
      {{64 * GiB, std::nullopt, false, 0.34}, 64 * GiB, 0.5, "", ""},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.hint);
    Alone w;
    w.rules.ledger_limit = row.limit;
    w.rules.ledger_max_pressure = row.max_pressure;
    const auto outcome = w.pause(row.host);
    ASSERT_EQ(outcome.has_value(), row.hint.empty());
    if (outcome.has_value()) continue;
    EXPECT_EQ(outcome.error().code, Code::HostMemory);
    EXPECT_SAYS(outcome.error().detail, row.detail);
    EXPECT_SAYS(outcome.error().hint, row.hint);
    EXPECT_EQ(w.state.host.entries, Bytes{});
    EXPECT_EQ(w.ordered<Park>(), 0);
  }
}

TEST(Restart, RemembersForWhomRoomWasOrdered) {
  Alone w;
  w.rules.automatic = false;
  w.ram = {};
  w.measure(9 * GiB);
  const LeaseId waiter = w.submit(wish(20 * GiB), true);
  ASSERT_TRUE(w.accepts(Preempt{waiter, 0, PreemptionRequest{1000, false}}));
  EXPECT_EQ(w.told(waiter).preemption_request, (PreemptionRequest{1000, false}));
  w.restart();
  EXPECT_EQ(request_of(w.state, waiter), (PreemptionRequest{1000, false}));
  w.ram = plenty;
  w.measure(9 * GiB);
  EXPECT_EQ(w.states(w.lease), "pausing") << "it is carried out";
  w.step(Release{waiter});
  EXPECT_FALSE(request_of(w.state, waiter));
}

// -------------------------------------------------------------------------------- how far it is

TEST(Moving, IsToldFromTheOrderUntilItIsMeasured) {
  Alone w;
  EXPECT_FALSE(move_of(w.state, w.lease));
  w.pause();
  auto now = move_of(w.state, w.lease);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->move, Move::pause);
  EXPECT_EQ(now->bytes, 9 * GiB);
  EXPECT_EQ(now->since, w.now);
  EXPECT_GT(now->takes.likely, Duration{});
  w.pass(3s);
  w.step(AttemptEvent{w.lease, Parked{true, {}, 9 * GiB}});
  EXPECT_EQ(move_of(w.state, w.lease)->move, Move::settle);
  w.measure({}), w.measure({});
  EXPECT_FALSE(move_of(w.state, w.lease));
  w.step(Resume{w.lease});
  now = move_of(w.state, w.lease);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->move, Move::resume);
  EXPECT_EQ(now->bytes, 9 * GiB);
  w.step(AttemptEvent{w.lease, Unparked{}});
  EXPECT_FALSE(move_of(w.state, w.lease));
}

}  // namespace
}  // namespace sublet::core::testing
