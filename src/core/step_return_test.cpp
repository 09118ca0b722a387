// SPDX-License-Identifier: Apache-2.0
// The return of a paused program, and what is known of it: after a restart, and after a pause that failed.
#include "core/testing/two_leases.h"

namespace sublet::core::testing {
namespace {

TEST(Pause, WhatARestoreNeedsIsKnownForEachProcess) {
  TwoLeases w;
  w.now = w.now + 20ms;
  w.snapshot({gpu(0, 24 * GiB, {uses(7, 3 * GiB, w.victim), uses(8, 6 * GiB, w.victim)})});
  w.pause();
  EXPECT_EQ(w.room().all, 9 * GiB) << "not the ten that it might have taken";
  EXPECT_EQ(w.room().of, (std::map<ProcessRef, Bytes>{{process(7), 3 * GiB}, {process(8), 6 * GiB}}));
  w.step(AttemptEvent{w.victim, Parked{true, {}, 8 * GiB}});
  EXPECT_EQ(w.room().all, 9 * GiB) << "host memory grows less where nothing was written";
  w.measure({}), w.measure({});
  w.restart();
  EXPECT_EQ(w.room().all, 9 * GiB) << "and so after a restart";
  EXPECT_EQ(w.room().of.size(), 2U);

  TwoLeases undone;
  undone.pause();
  undone.restart();
  EXPECT_EQ(undone.room().all, 9 * GiB) << "not all of its lease";

  TwoLeases unread;
  unread.restart();
  ASSERT_TRUE(unread.pause().has_value()) << "before anything was read again";
  EXPECT_TRUE(unread.room().of.empty());
  unread.step(AttemptEvent{unread.victim, Parked{true, {}, 3 * GiB}});
  EXPECT_EQ(unread.room().all, 10 * GiB) << "what was not measured may be all of its lease";

  TwoLeases back;
  back.settle_alone();
  back.resume();
  back.pass(1s);
  back.unparked();
  ASSERT_TRUE(back.pause().has_value()) << "before it is seen what it holds again";
  EXPECT_EQ(back.room().all, 10 * GiB);
}

TEST(Pause, WhatComesBackUnlistedIsOfWhomIsBroughtBack) {
  TwoLeases w;
  w.settle();
  w.step(Release{w.waiter});
  w.resume();
  const auto read = [&w](std::vector<ProcessUse> processes, Bytes unlisted) {
    w.now = w.now + 20ms;
    w.snapshot({gpu(0, 24 * GiB, std::move(processes), unlisted)});
    return w.state.devices.by_uuid.begin()->second;
  };
  EXPECT_EQ(read({}, 4 * MiB).other, Bytes{});
  EXPECT_EQ(read({}, 5 * GiB).other, Bytes{});
  EXPECT_EQ(read({}, 9 * GiB + 64 * MiB).other, 64 * MiB) << "no more than is to come";
  EXPECT_EQ(w.free(0), 24 * GiB - w.rules.headroom - 10 * GiB - 64 * MiB);
  EXPECT_LE(read({uses(7, 2 * GiB, w.victim)}, 7 * GiB).other, 64 * MiB);
  EXPECT_EQ(read({uses(7, 9 * GiB, w.victim)}, {}).other, Bytes{});
  EXPECT_EQ(read({uses(7, 9 * GiB, w.victim)}, 2 * GiB).other, 2 * GiB) << "it has all of it";
  w.unparked();
  EXPECT_EQ(w.states(w.victim), "active");
}

// An empty list on a card that is more than half full is believed as far as that is of those who are brought back.
TEST(Pause, ACardIsKnownWhileTheOnlyOneThereIsBroughtBack) {
  OneCard w;
  const LeaseId large = w.run(20 * GiB, 7, "train", 1h);
  const auto read = [&](Bytes used, Bytes unlisted) {
    w.now = w.now + 20ms;
    w.measure(used > Bytes{} ? std::vector{uses(7, used, large)} : std::vector<ProcessUse>{}, unlisted);
    return w.state.devices.by_uuid.begin()->second.problem;
  };
  read(18 * GiB, {});
  ASSERT_TRUE(w.accepts(Pause{large, 0, {}, plenty}));
  w.step(AttemptEvent{large, Parked{true, {}, 18 * GiB}});
  read({}, {}), read({}, {});
  ASSERT_EQ(w.states(large), "paused");
  EXPECT_SAYS(read({}, 18 * GiB), "18.0 GiB of 24.0 GiB are used and no process is listed");
  read({}, {});
  ASSERT_TRUE(w.accepts(Resume{large}));
  EXPECT_EQ(read({}, 18 * GiB), "");
  EXPECT_EQ(w.state.devices.by_uuid.begin()->second.other, Bytes{});
}

TEST(Pause, ASlowLinkIsGivenTheTimeThatItTookTheNextTime) {
  TwoLeases w;
  w.leave();
  w.pause();
  const Duration given_up = w.newest<Park>()->give_up;
  w.pass(given_up);
  Parked late{false, "the driver has not returned"};
  late.code = ObstacleCode::stuck;
  w.step(AttemptEvent{w.victim, late});
  w.step(AttemptEvent{
      w.victim, Unparked{.how = Unparked::How::not_yet, .detail = "it has not returned", .code = ObstacleCode::stuck}});
  w.pass(30s);
  w.step(AttemptEvent{w.victim, DriverReturned{}});
  w.unparked();
  ASSERT_EQ(w.states(w.victim), "active");
  w.pass(10min);
  w.measure(9 * GiB);
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_GT(w.newest<Park>()->give_up, given_up + 30s) << "else it would be undone again and again";
  EXPECT_GT(w.newest<Park>()->at_most, given_up) << "and is no longer stuck before it can be done";
}

TEST(Pause, WhatAProgramHeldBeyondItsLeaseComesBackToo) {
  for (const bool restart : {false, true}) {
    TwoLeases w;
    w.leave();
    w.measure(13 * GiB);
    w.settle();
    const LeaseId other = w.submit(12 * GiB);
    if (restart) w.restart();
    w.measure({});
    w.resume();
    EXPECT_EQ(w.states(w.victim), "paused") << "12 GiB are free, and 13 come back";
    if (restart) w.measure(2 * GiB);
    w.step(Release{.lease = other, .force = true});
    ASSERT_EQ(w.states(w.victim), "resuming");
    const Bytes beside = restart ? 2 * GiB : Bytes{};
    EXPECT_EQ(w.free(0), 11 * GiB - beside) << "and the two that it took since";
    if (restart) w.restart();
    w.measure(2 * GiB);
    EXPECT_EQ(w.free(0), 11 * GiB - beside);
    EXPECT_EQ(w.room().all, 13 * GiB);
    EXPECT_EQ(w.room().beside, beside);
    w.unparked();
    w.measure(9 * GiB);
    EXPECT_EQ(w.free(0), 14 * GiB);
  }
}

TEST(Pause, WhyItDoesNotRunAgainIsToldWheneverItIsAnotherReason) {
  TwoLeases w;
  w.settle_alone();
  w.resume();
  const auto fails = [&w](const std::string& detail, ObstacleCode code) {
    w.step(AttemptEvent{w.victim, Unparked{Unparked::How::not_yet, detail, {}, code}});
    w.pass(10s);
    return w.times_told(w.victim, ReasonKind::resume_failed);
  };
  EXPECT_EQ(fails("the helper ended", ObstacleCode::helper), 1);
  EXPECT_EQ(fails("the helper ended", ObstacleCode::helper), 1);
  EXPECT_EQ(fails("process 7 does not let itself be traced", ObstacleCode::not_dumpable), 2);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::resume_failed).text("detail"), resume_failure(w.state, w.victim));
  EXPECT_EQ(resume_failure(w.state, w.victim), "process 7 does not let itself be traced");
  EXPECT_SAYS(w.helps(w.victim), "process 7 does not let itself be traced");
  w.unparked();
  EXPECT_TRUE(resume_failure(w.state, w.victim).empty());

  w.measure(9 * GiB);
  ASSERT_TRUE(w.pause().has_value());
  w.step(AttemptEvent{w.victim, LockIntent{{process(7), process(8)}}});
  w.step(AttemptEvent{w.victim, Parked{false, "process 8 does not let itself be traced"}});
  fails("process 8 does not let itself be traced", ObstacleCode::no_right);
  EXPECT_SAYS(w.helps(w.victim), "kill -KILL 7 8") << "it can be given up by hand";
  fails("there is no room", ObstacleCode::no_room);
  EXPECT_EQ(explain::what_would_help(w.state, w.rules, w.at(w.victim), w.now).size(), 1U) << "room comes by itself";
}

TEST(Pause, ARestartKeepsWhatIsParkedAndUndoesWhatWasHalfDone) {
  TwoLeases w;
  w.settle();
  w.resume();
  w.restart();
  EXPECT_EQ(w.states(w.victim), "paused");
  EXPECT_EQ(w.state.host.entries, 9 * GiB);
  EXPECT_EQ(w.state.queue.place(w.victim), 1u);
  w.measure({});
  EXPECT_EQ(w.at(w.victim).reserved(), 64 * MiB);
  w.step(Release{w.waiter});
  EXPECT_EQ(w.states(w.victim), "resuming");
  w.restart();
  EXPECT_EQ(w.ordered<Unpark>(), 2) << "the order may have been lost";
  w.pass(5s);
  w.unparked();
  const Time back = w.now;
  EXPECT_EQ(w.at(w.victim).resumed_at, back);
  w.pass(1s);
  w.restart();
  EXPECT_EQ(standing_of(w.state, w.victim).came_back, back) << "and it is known when the program came back";
  EXPECT_EQ(standing_of(w.state, w.victim).restored, back);
  w.measure(9 * GiB);
  w.pause();
  w.restart();
  EXPECT_EQ(w.states(w.victim), "resuming");
  EXPECT_EQ(w.ordered<Unpark>(), 3);
  w.unparked();
  EXPECT_EQ(w.states(w.victim), "active");
}

TEST(Pause, WhoNeedsMoreThanThereIsComesBackWhereNobodyElseIsPromisedAnything) {
  TwoLeases w;
  w.settle_alone();
  w.measure(16 * GiB), w.measure(16 * GiB);
  w.resume();
  ASSERT_EQ(w.states(w.victim), "resuming") << "nobody else is there";
  EXPECT_LT(w.free(0), Bytes{}) << "nor comes meanwhile";
}

TEST(Pause, WhatItTookWhileItWasPausedStandsInItsOwnWayAndItIsToldSo) {
  TwoLeases w;
  w.settle_alone();
  w.measure(3 * GiB), w.measure(3 * GiB);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::allocated_while_paused).bytes("holds"), 3 * GiB);
  ASSERT_TRUE(w.resume().has_value());
  ASSERT_EQ(w.states(w.victim), "resuming");
  EXPECT_EQ(w.room().beside, 3 * GiB);
  EXPECT_EQ(w.free(0), 11 * GiB) << "the 10 GiB of its lease come back beside what it took";
  w.unparked(Unparked::How::not_yet);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::resume_failed).bytes("beside"), 3 * GiB);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::resume_failed).bytes("parked"), 9 * GiB);
  w.measure({});
  w.pass(1s);
  EXPECT_EQ(w.ordered<Unpark>(), 2) << "tried again";
  w.unparked();
  EXPECT_EQ(w.free(0), 11 * GiB) << "what it holds now is not measured yet";
  w.measure(10 * GiB);
  EXPECT_EQ(w.free(0), 14 * GiB);
}

TEST(Pause, WhatItTookWhileItWasPausedComesBackIntoNobodysRoom) {
  TwoLeases w;
  w.settle_alone();
  w.measure(3 * GiB), w.measure(3 * GiB);
  ASSERT_TRUE(w.at(w.submit(12 * GiB)).reserves());
  ASSERT_TRUE(w.resume().has_value());
  EXPECT_EQ(w.states(w.victim), "paused") << "9 GiB are free beside its 3, and 10 are to come back";
  EXPECT_EQ(w.reason(w.victim, ReasonKind::resume_queued).bytes("beyond"), 3 * GiB);
  w.measure(2 * GiB);
  ASSERT_EQ(w.states(w.victim), "resuming") << "it gave one back";
  EXPECT_EQ(w.free(0), Bytes{});
  w.measure(12 * GiB);
  EXPECT_EQ(w.free(0), Bytes{}) << "as was foreseen";
  w.unparked();
  w.measure(9 * GiB);
  EXPECT_EQ(w.free(0), 2 * GiB);
}

// Some of its processes may have been restored before the driver failed another.
TEST(Poisoned, TheRoomOfWhatFailedForGoodIsNobodysBeforeItIsMeasured) {
  const struct {
    Bytes left;
    bool ends;  // its lease, before that is measured
  } rows[] = {{{}, false}, {4 * GiB, false}, {{}, true}};
  for (const auto& [left, ends] : rows) {
    TwoLeases w;
    w.settle_alone();
    w.resume();
    const LeaseId next = w.submit(wish(22 * GiB, "next"), true);
    w.unparked(Unparked::How::never);
    ASSERT_EQ(w.states(w.victim, next), "poisoned queued") << "nobody knows yet what it has taken again";
    EXPECT_TRUE(w.wants_snapshot());
    if (ends) w.step(ProgramEnded{w.victim, 137, true});
    EXPECT_EQ(w.states(next), "queued");
    w.measure(left);
    EXPECT_EQ(w.states(next), left > Bytes{} ? "queued" : "active");
    if (ends) continue;
    EXPECT_EQ(charged_on(w.state, w.at(w.victim), uuid_of(0)), std::max(left, w.at(w.victim).parking->residue));
  }
}

}  // namespace
}  // namespace sublet::core::testing
