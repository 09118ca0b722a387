// SPDX-License-Identifier: Apache-2.0
#include "core/blocked.h"
#include "core/testing/world.h"

namespace sublet::core::testing {
namespace {

using namespace std::chrono_literals;

constexpr HostMemory large_host{64 * GiB, std::nullopt};

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
  Status pause(LeaseId id, HostMemory host = large_host) {
    const auto done = step(Pause{id, 0, {}, host}).outcome;
    return done ? Status{} : Status{done.error()};
  }
  void settle() {
    ASSERT_TRUE(pause(lease));
    step(Parked{lease, true, {}, 9 * GiB});
    measure({});
    measure({});
    ASSERT_EQ(state_of(lease), LeaseState::paused);
  }
  std::optional<Blocked> blocked(LeaseId id) const { return what_blocks(state, rules, at(id), now); }
  int times_told(LeaseId id) const {
    return static_cast<int>(std::count_if(reasons.begin(), reasons.end(),
                                          [id](const Reason& r) { return r.lease == id && code(r) == "blocked"; }));
  }
  int unparks() const {
    return static_cast<int>(std::count_if(actions.begin(), actions.end(),
                                          [](const Action& a) { return std::holds_alternative<Unpark>(a); }));
  }
};

// -------------------------------------------------------------------------------- unleased processes in its place

TEST(Away, TheUnleasedProcessInItsPlaceIsNamedWithItsBytes) {
  Alone w;
  w.settle();
  w.measure({}, 20 * GiB);
  EXPECT_FALSE(w.blocked(w.lease)) << "it does not want back yet";
  w.step(Resume{w.lease});
  const auto blocked = w.blocked(w.lease);
  ASSERT_TRUE(blocked);
  EXPECT_EQ(blocked->code, Code::ResumeBlocked);
  ASSERT_EQ(blocked->unleased_processes.size(), 1U);
  EXPECT_EQ(blocked->unleased_processes[0].process, process(99));
  EXPECT_EQ(blocked->unleased_processes[0].bytes, 20 * GiB);
  const ReasonArgs& why = w.reason(w.lease, ReasonKind::blocked_by_processes);
  EXPECT_EQ(why.text("problem"), "ResumeBlocked");
  EXPECT_EQ(why.parts("processes"), (std::vector<ReasonPart>{{"pid 99 (game, without a lease)", 20 * GiB}}));
  w.measure({}, 20 * GiB);
  w.measure({}, 19 * GiB);
  EXPECT_EQ(w.times_told(w.lease), 1) << "once for each unleased process";
  w.measure({}, 19 * GiB, 98);
  EXPECT_EQ(w.times_told(w.lease), 2);
  EXPECT_EQ(w.unparks(), 0);
  w.measure({});
  EXPECT_EQ(w.state_of(w.lease), LeaseState::resuming) << "by itself";
  EXPECT_FALSE(w.blocked(w.lease));
}

TEST(Away, AnotherLeaseInItsPlaceIsNoUnleasedProcess) {
  Alone w;
  w.settle();
  w.rules.automatic = false;
  const LeaseId other = w.submit(wish(20 * GiB));
  EXPECT_EQ(w.state_of(other), LeaseState::active);
  w.step(Resume{w.lease});
  w.measure({}, GiB);
  EXPECT_FALSE(w.blocked(w.lease)) << "without the unleased process it would not fit either";
  EXPECT_EQ(w.times_told(w.lease), 0);
}

TEST(Away, BytesOfNoListedProcessAreNobody) {
  Alone w;
  w.settle();
  w.snapshot({gpu(0, 24 * GiB, {}, 20 * GiB)});
  w.step(Resume{w.lease});
  EXPECT_EQ(w.state_of(w.lease), LeaseState::paused);
  EXPECT_FALSE(w.blocked(w.lease));
}

TEST(Away, ARestoreThatFindsNoRoomNamesWhoTookIt) {
  Alone w;
  w.settle();
  w.step(Resume{w.lease});
  ASSERT_EQ(w.state_of(w.lease), LeaseState::resuming);
  w.measure({}, 20 * GiB);
  EXPECT_FALSE(w.blocked(w.lease)) << "it may be restored all the same";
  w.step(Unparked{w.lease, Unparked::How::not_yet, "no room", {}, true});
  ASSERT_TRUE(w.blocked(w.lease));
  EXPECT_EQ(w.blocked(w.lease)->code, Code::ResumeBlocked);
  EXPECT_EQ(w.reason(w.lease, ReasonKind::blocked_by_processes).text("needs"), "restore");
  w.step(Unparked{w.lease, Unparked::How::not_yet, "the driver is busy"});
  EXPECT_FALSE(w.blocked(w.lease)) << "that is no want of room";
}

TEST(Away, WhoWaitsForWhatAnUnleasedProcessTookIsToldSoAndNotTheVictimBlamed) {
  Alone w;
  Lease urgent = wish(20 * GiB, "infer");
  urgent.tier = Tier::critical;
  const LeaseId waiter = w.submit(urgent, true);
  w.step(HostWeighed{w.lease, large_host});
  ASSERT_EQ(w.state_of(w.lease), LeaseState::pausing);
  w.step(Parked{w.lease, true, {}, 9 * GiB});
  w.measure({}, 8 * GiB);
  w.measure({}, 8 * GiB);
  EXPECT_EQ(w.state.record(anas("train"), PauseMethod::driver)->reliability(), 1) << "it did yield";
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
    step(Pause{lease, 0, {}, large_host});
    step(Parked{lease, true, {}, Bytes{}});
    for (int i = 0; i < 2; ++i) now = now + 20ms, snapshot({gpu(0, 24 * GiB)});
    EXPECT_EQ(state_of(lease), LeaseState::paused);
  }
  void tell(bool lives) { step(LivenessReport{lease, lives}); }
};

TEST(Orphan, AParkedTokenLeaseWithoutAProcessEnds) {
  Token w;
  w.pass(10h);
  EXPECT_EQ(w.state_of(w.lease), LeaseState::paused) << "its time stands still, and nobody said that it is empty";
  w.tell(true);
  w.pass(10h);
  EXPECT_EQ(w.state_of(w.lease), LeaseState::paused);
  w.tell(false);
  w.pass(59min);
  EXPECT_EQ(w.state_of(w.lease), LeaseState::paused) << "counted from the last process";
  w.tell(false);
  w.pass(2min);
  EXPECT_TRUE(w.gone(w.lease));
  EXPECT_GE(w.reason(w.lease, ReasonKind::orphaned).duration("paused"), 21h);
  EXPECT_EQ(w.reason(w.lease, ReasonKind::orphaned).duration("empty"), w.rules.orphan_after);
}

TEST(Orphan, IsCountedOverRestartsOnceItIsSeen) {
  Token w;
  w.tell(false);
  EXPECT_EQ(w.told(w.lease).parking->orphaned_since, w.now);
  for (int day = 0; day < 3; ++day) {
    w.pass(15min);
    w.restart();
    w.tell(false);
    EXPECT_TRUE(w.last.changed.empty()) << "that is known";
  }
  w.pass(10min);
  EXPECT_EQ(w.state_of(w.lease), LeaseState::paused);
  w.pass(6min);
  EXPECT_TRUE(w.gone(w.lease));
}

TEST(Orphan, BeginsAnewWhenSomebodyLived) {
  Token w;
  w.tell(false);
  w.pass(50min);
  w.tell(true);
  EXPECT_FALSE(w.told(w.lease).parking->orphaned_since);
  w.restart();
  w.tell(false);
  w.pass(50min);
  EXPECT_EQ(w.state_of(w.lease), LeaseState::paused);
}

TEST(Orphan, TimeAsleepDoesNotCount) {
  Token w;
  w.tell(false);
  w.now = w.now + 10h;
  w.step(ClockGap{10h});
  EXPECT_EQ(w.told(w.lease).parking->orphaned_since, w.now) << "and that is stored";
  w.pass(59min);
  EXPECT_EQ(w.state_of(w.lease), LeaseState::paused);
}

// Only time counts for which no process is known to have lived. The pause before, in which one lived, does not count,
// nor do a sleep of the machine and the time before a daemon looked.
TEST(Orphan, WhoseLastProcessNobodySawEndCountsFromWhenThatIsSeen) {
  Token w;
  w.pass(50min);
  w.restart();
  w.pass(20min);
  EXPECT_EQ(w.state_of(w.lease), LeaseState::paused) << "nobody has looked yet";
  w.tell(false);
  w.pass(59min);
  EXPECT_EQ(w.state_of(w.lease), LeaseState::paused) << "until then somebody may have lived";
  w.pass(2min);
  EXPECT_TRUE(w.gone(w.lease));
}

TEST(Orphan, SleepBeforeAnybodyLookedDoesNotCount) {
  Token w;
  w.now = w.now + 10h;
  w.step(ClockGap{10h});
  w.tell(false);
  EXPECT_EQ(w.state_of(w.lease), LeaseState::paused);
  w.pass(61min);
  EXPECT_TRUE(w.gone(w.lease));
}

TEST(Orphan, ProgramsOfTheirOwnAreNoOrphans) {
  Alone w;
  w.settle();
  EXPECT_FALSE(w.step(LivenessReport{w.lease, false}).outcome.has_value());
}

// -------------------------------------------------------------------------------- the ledger, and what a restart keeps

TEST(Ledger, OneUserMayNotFillItForAllOthers) {
  Alone w;
  w.rules.ledger_limit = 16 * GiB;
  w.rules.ledger_user_share = 0.5;
  ASSERT_TRUE(w.pause(w.lease)) << "alone: all of it is there for this user";
  w.step(Parked{w.lease, false, "no"});
  w.step(Unparked{w.lease});
  Lease theirs = wish(GiB);
  theirs.uid = 1001;
  theirs.user = "bob";
  w.submit(theirs);
  const Status refused = w.pause(w.lease);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::HostMemory);
  EXPECT_SAYS(refused.error().detail, "host memory takes 8.0 GiB more");
  EXPECT_SAYS(refused.error().detail, "0 B of the 8.0 GiB that one user may take (ana)");
  EXPECT_SAYS(refused.error().hint, "ledger.user_share");
  w.rules.ledger_user_share = 1;
  ASSERT_TRUE(w.pause(w.lease));
  EXPECT_EQ(w.state.ledger_of(1000), 10 * GiB);
  EXPECT_EQ(w.state.ledger_of(1001), Bytes{});
}

TEST(Ledger, TheHintIsAboutWhatLeavesLeast) {
  Alone w;
  EXPECT_SAYS(w.pause(w.lease, {4 * GiB, std::nullopt}).error().hint, "ledger.reserve");
  EXPECT_SAYS(w.pause(w.lease, {64 * GiB, 2 * GiB}).error().hint, "memory.max");
  EXPECT_SAYS(w.pause(w.lease, {64 * GiB, 2 * GiB}).error().detail, "the control group that is charged takes 2.0 GiB");
  w.rules.ledger_limit = 2 * GiB;
  EXPECT_EQ(w.pause(w.lease).error().hint, "an admin can raise ledger.limit in sublet.toml") << "nothing is parked";
  w.rules.ledger_limit = 10 * GiB - MiB;
  const Error nearly = w.pause(w.lease).error();
  EXPECT_EQ(nearly.hint,
            "it uses less than it leased: `sublet resize lease-1 9.0GiB` gives back the rest; or an admin "
            "can raise ledger.limit in sublet.toml");
  EXPECT_SAYS(nearly.detail, "holds 10.0 GiB, and host memory takes 9.9 GiB more");
}

TEST(Ledger, NobodyIsParkedWhileHostMemoryIsShortForAllThatRuns) {
  Alone w;
  const auto refused = w.pause(w.lease, {64 * GiB, std::nullopt, false, 0.34});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::HostMemory);
  EXPECT_SAYS(refused.error().detail, "for 34 % of the last 10 s everybody waited for it, and more than 10 % is");
  EXPECT_SAYS(refused.error().hint, "ledger.max_pressure");
  EXPECT_EQ(w.state.ledger_entries(), Bytes{});
  w.rules.ledger_max_pressure = 0.5;
  EXPECT_TRUE(w.pause(w.lease, {64 * GiB, std::nullopt, false, 0.34}));
}

TEST(Restart, RemembersWhenAProgramCameBack) {
  Alone w;
  w.settle();
  w.step(Resume{w.lease});
  w.pass(5s);
  w.step(Unparked{w.lease});
  const Time back = w.now;
  EXPECT_EQ(w.at(w.lease).resumed_at, back);
  w.pass(1s);
  w.restart();
  EXPECT_EQ(w.state.standing(w.lease).came_back, back);
  EXPECT_EQ(w.state.standing(w.lease).restored, back);
}

TEST(Restart, RemembersForWhomRoomWasOrdered) {
  Alone w;
  w.rules.automatic = false;
  const LeaseId waiter = w.submit(wish(20 * GiB), true);
  ASSERT_TRUE(w.step(Preempt{waiter, 0, PreemptionRequest{1000, false}}).outcome.has_value());
  EXPECT_EQ(w.told(waiter).preemption_request, (PreemptionRequest{1000, false}));
  w.restart();
  EXPECT_EQ(w.state.preemption_request(waiter), (PreemptionRequest{1000, false}));
  w.measure(9 * GiB);
  EXPECT_NE(w.state.plan_for(waiter), nullptr) << "it is carried out";
  w.step(Release{waiter});
  EXPECT_FALSE(w.state.preemption_request(waiter));
}

TEST(Restart, RemembersHowPausesWent) {
  Alone w;
  w.pause(w.lease);
  w.step(Parked{w.lease, false, "it is traced"});
  ASSERT_EQ(w.last.records.size(), 1U);
  EXPECT_EQ(w.last.records[0], (LearnedRecord{anas("train"), PauseMethod::driver, {0, 1}}));
  const State again = State::load(w.stored(), {}, 9, w.rules, w.now, {}, {}, w.last.records);
  ASSERT_NE(again.record(anas("train"), PauseMethod::driver), nullptr);
  EXPECT_LT(again.record(anas("train"), PauseMethod::driver)->reliability(), 1);
}

// -------------------------------------------------------------------------------- how far it is

TEST(Moving, IsToldFromTheOrderUntilItIsMeasured) {
  Alone w;
  EXPECT_FALSE(w.state.moving(w.lease));
  w.pause(w.lease);
  auto now = w.state.moving(w.lease);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->move, Move::pause);
  EXPECT_EQ(now->bytes, 9 * GiB);
  EXPECT_EQ(now->since, w.now);
  EXPECT_GT(now->takes.likely, Duration{});
  w.pass(3s);
  w.step(Parked{w.lease, true, {}, 9 * GiB});
  EXPECT_EQ(w.state.moving(w.lease)->move, Move::settle);
  w.measure({});
  w.measure({});
  EXPECT_FALSE(w.state.moving(w.lease));
  w.step(Resume{w.lease});
  now = w.state.moving(w.lease);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->move, Move::resume);
  EXPECT_EQ(now->bytes, 9 * GiB);
  w.step(Unparked{w.lease});
  EXPECT_FALSE(w.state.moving(w.lease));
}

}  // namespace
}  // namespace sublet::core::testing
