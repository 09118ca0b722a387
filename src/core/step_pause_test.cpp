// SPDX-License-Identifier: Apache-2.0
#include "core/testing/two_leases.h"

namespace sublet::core::testing {
namespace {

TEST(Pause, GivesItsRoomOnlyOnceTheBytesAreMeasuredGone) {
  TwoLeases w;
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_EQ(w.states(w.victim), "pausing");
  EXPECT_EQ(w.ordered<Park>(), 1);
  EXPECT_EQ(w.state.host.entries, 10 * GiB) << "entered before the asking: all it may hold";
  w.measure({}), w.measure({});
  EXPECT_EQ(w.states(w.victim), "pausing") << "what it held before it said that it yielded proves nothing";
  w.parked();
  EXPECT_TRUE(w.last.changed.empty()) << "it is stored with the result";
  EXPECT_TRUE(w.wants_snapshot());
  w.pass(20ms);
  EXPECT_TRUE(w.wants_snapshot()) << "again and again while it verifies";
  EXPECT_LE(w.last.wake_at, w.now + 20ms);
  w.measure({});
  EXPECT_EQ(w.states(w.victim, w.waiter), "pausing queued") << "one snapshot is no proof";
  w.measure(9 * GiB), w.measure({});
  EXPECT_EQ(w.states(w.victim), "pausing") << "proofs count in a row only";
  w.measure({});
  EXPECT_EQ(w.states(w.victim, w.waiter), "paused active");
  EXPECT_EQ(w.state.host.entries, 9 * GiB) << "settled with what was really parked";
  EXPECT_EQ(w.state.host.unsettled, Bytes{});
  EXPECT_EQ(w.at(w.victim).reserved(), 64 * MiB) << "the residue";
  EXPECT_EQ(w.reason(w.victim, ReasonKind::paused).bytes("parked"), 9 * GiB);
  EXPECT_SAYS(w.helps(w.victim), "`sublet resume " + to_string(w.victim) + "`");
}

TEST(Pause, ItsTimeIsCountedFromWhenItsRoomIsGivenAwayUntilItHasItAgainOrEnds) {
  for (const bool ends : {false, true}) {
    TwoLeases w;
    w.pass(1min);
    w.pause();
    w.pass(1s);
    w.yields();
    ASSERT_EQ(w.states(w.victim), "paused");
    EXPECT_EQ(w.told(w.victim).parked_at, w.now);
    EXPECT_EQ(w.told(w.victim).parked_until(w.now), 0s) << "on the way out it holds its room";
    w.now = w.now + 10min;
    if (ends) {
      w.step(ProgramEnded{w.victim, 137, true});
      EXPECT_EQ(w.told(w.victim).end_reason, EndReason::owner_gone);
      EXPECT_EQ(w.told(w.victim).parked_for, 10min);
      EXPECT_EQ(w.told(w.victim).parked_until(w.now + 1h), 10min);
      EXPECT_EQ(w.state.host.entries, Bytes{});
      w.measure({});
      EXPECT_EQ(w.free(0), 4 * GiB) << "and its residue";
      EXPECT_TRUE(w.gone(w.victim));
      continue;
    }
    w.restart();
    EXPECT_EQ(w.at(w.victim).parked_until(w.now), 10min) << "over a restart too";
    w.step(Release{w.waiter});
    w.step(Resume{w.victim});
    w.measure({});
    ASSERT_EQ(w.states(w.victim), "resuming");
    const Duration away = w.at(w.victim).parked_until(w.now);
    EXPECT_GE(away, 10min);
    EXPECT_EQ(w.at(w.victim).parked_at, std::nullopt);
    w.pass(30s);
    w.unparked();
    ASSERT_EQ(w.states(w.victim), "active");
    EXPECT_EQ(w.at(w.victim).parked_until(w.now), away) << "while it is restored it has its room";
  }
}

TEST(Pause, TimeAsleepIsNoTimeThatAMoveTook) {
  for (const bool undone : {false, true}) {
    TwoLeases w;
    w.pause();
    w.now = w.now + 3h;
    w.step(ClockGap{.asleep = 3h});
    w.step(AttemptEvent{w.victim, Parked{!undone, {}, 9 * GiB}});
    EXPECT_TRUE(w.last.learned.empty()) << "so far that is but said";
    if (undone) {
      w.unparked();
      EXPECT_TRUE(w.last.learned.empty()) << "an undone pause is no resume";
      continue;
    }
    w.measure({}), w.measure({});
    ASSERT_EQ(w.last.learned.size(), 2U);
    EXPECT_EQ(w.last.learned[0].move, Move::pause);
    EXPECT_LT(w.last.learned[0].sample.took, 1min) << "else the next one would be given hours";
  }
}

TEST(Pause, WhatItTakesIsLearnedOfItsDeviceAndOfNoneOfSeveral) {
  for (const int count : {1, 2}) {
    World w;
    w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
    Lease lease = wish(10 * GiB, "train");
    lease.device_count = count;
    lease.owner.kind = OwnerKind::connection;
    const LeaseId id = w.submit(lease, true);
    w.step(Attach{id, 0, kept_process(7), true, {}});
    w.step(Pause{id, 0, {}, plenty});
    w.step(AttemptEvent{id, Parked{true, {}, 9 * GiB}});
    for (int proof = 0; proof < 2; ++proof) {
      w.pass(1s);
      w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
    }
    ASSERT_EQ(w.last.learned.size(), 2U);
    EXPECT_EQ(w.last.learned[0].device, count == 1 ? w.device_of(id) : std::string());
  }
}

TEST(Pause, AMethodThatFailedIsUndoneUntilTheProgramRuns) {
  TwoLeases w;
  w.pause();
  w.step(AttemptEvent{w.victim, Parked{false, "pid 7 is traced"}});
  EXPECT_EQ(w.reason(w.victim, ReasonKind::pause_failed).text("detail"), "pid 7 is traced");
  EXPECT_TRUE(w.reason(w.victim, ReasonKind::pause_failed).flag("begun"));
  for (int tries = 1; tries <= 4; ++tries) {
    EXPECT_EQ(w.ordered<Unpark>(), tries);
    w.unparked(Unparked::How::not_yet);
    EXPECT_EQ(w.states(w.victim), "resuming");
    w.pass(std::chrono::seconds(1 << (tries - 1)));
  }
  EXPECT_EQ(w.ordered<Unpark>(), 5);
  w.unparked();
  EXPECT_EQ(w.states(w.victim), "active");
}

TEST(Pause, WhomTheDriverLocksIsStoredBeforeAndAllThatHasToComeBack) {
  TwoLeases w;
  const auto touch = [&w](std::vector<ProcessRef> all) {
    return w.accepts(AttemptEvent{w.victim, LockIntent{std::move(all)}});
  };
  EXPECT_FALSE(touch({process(7)})) << "it is not asked to yield";
  w.pause();
  ASSERT_TRUE(touch({process(7)}));
  ASSERT_TRUE(touch({process(7), process(8)})) << "one that came while the first was locked";
  EXPECT_EQ(w.ordered<Lock>(), 2);
  const std::vector<ProcessRef> both{process(7), process(8)};
  EXPECT_EQ(w.told(w.victim).parking->locked_processes, both);
  w.step(AttemptEvent{w.victim, Parked{false, "pid 8 uses managed memory"}});
  EXPECT_EQ(w.newest<Unpark>()->locked_processes, both) << "nobody knows how far that came";
  EXPECT_FALSE(touch({process(9)})) << "too late";
  w.restart();
  EXPECT_EQ(w.newest<Unpark>()->locked_processes, both) << "not who lives by now: who was touched";
  w.unparked();
  w.pause();
  EXPECT_EQ(w.at(w.victim).parking->locked_processes, std::vector<ProcessRef>{});
}

TEST(Pause, WhatIsUndoneAlreadyNeedsNoDriverToComeBack) {
  for (const bool locked : {true, false}) {
    TwoLeases w;
    w.pause();
    if (locked) w.step(AttemptEvent{w.victim, LockIntent{{process(7)}}});
    if (locked) w.step(AttemptEvent{w.victim, Parked{false, "its work was not done in time", {}, true}});
    else w.restart();  // the daemon ends before anybody is locked
    EXPECT_EQ(w.newest<Unpark>()->locked_processes, std::vector<ProcessRef>{});
  }
}

TEST(Pause, ComesBackInItsTurnAndIntoItsOwnRoom) {
  TwoLeases w;
  w.settle();
  const auto left = w.at(w.victim).time_left(w.now);
  ASSERT_TRUE(w.resume().has_value());
  EXPECT_EQ(w.states(w.victim), "paused");
  EXPECT_EQ(w.state.queue.place(w.victim), 1u);
  EXPECT_EQ(w.state.queue.waiting_bytes(), 10 * GiB) << "its whole size, with the residue that it keeps";
  EXPECT_EQ(w.reason(w.victim, ReasonKind::resume_queued).number("place"), 1);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::resume_queued).bytes("vram"), 10 * GiB);
  EXPECT_EQ(w.states(w.submit(wish(5 * GiB), true)), "queued");
  w.step(Release{w.waiter});
  EXPECT_EQ(w.states(w.victim), "resuming");
  EXPECT_EQ(w.at(w.victim).reserved(), 10 * GiB) << "reserved before anything is restored";
  EXPECT_EQ(w.ordered<Unpark>(), 1);
  w.unparked();
  EXPECT_EQ(w.states(w.victim), "active");
  EXPECT_EQ(w.state.host.entries, Bytes{});
  EXPECT_EQ(w.at(w.victim).time_left(w.now), left) << "its time goes on where the pause began";
}

TEST(Pause, WhatWasJustGivenBackIsInUseThoughNotMeasuredYet) {
  TwoLeases w;
  w.settle_alone();
  w.resume();
  w.now = w.now + 1ms;
  w.unparked();
  EXPECT_TRUE(w.wants_snapshot());
  EXPECT_EQ(w.refusal(Release{w.victim}).code, Code::InUse);
  EXPECT_EQ(w.refusal(Resize{w.victim, 0, 1 * GiB}).code, Code::InUse);
  w.measure(9 * GiB);
  EXPECT_EQ(w.refusal(Resize{w.victim, 0, 1 * GiB}).code, Code::InUse) << "it is seen to hold them";
  w.measure({});
  EXPECT_TRUE(w.accepts(Release{w.victim}));
}

TEST(Pause, WhatTheDriverKeepsOfItStandsInNobodysWay) {
  OneCard w;
  const auto& card = w.state.devices.by_uuid.begin()->second;
  const LeaseId whole = w.run(capacity_of(card, w.rules), 7, "train", 1h);
  const auto other = [&](Bytes hidden) {
    w.now = w.now + 20ms;
    w.measure({}, hidden);
    return w.state.devices.by_uuid.begin()->second.other;
  };
  w.measure({uses(7, 20 * GiB, whole)});
  ASSERT_TRUE(w.accepts(Pause{whole, 0, {}, plenty}));
  w.step(AttemptEvent{whole, Parked{true, {}, 20 * GiB}});
  other(4 * MiB);
  EXPECT_EQ(other(4 * MiB), Bytes{}) << "it is part of the residue";
  ASSERT_EQ(w.states(whole), "paused");
  EXPECT_EQ(other(80 * MiB), 16 * MiB) << "and so much the residue is not";
  other(4 * MiB);
  ASSERT_TRUE(w.accepts(Resume{whole}));
  EXPECT_EQ(w.states(whole), "resuming");
  EXPECT_EQ(w.state.devices.by_uuid.begin()->second.other, Bytes{}) << "until it holds its bytes again";
}

TEST(Pause, ARestoreThatFailedForGoodIsKeptAndTold) {
  TwoLeases w;
  w.settle_alone();
  w.resume();
  w.unparked(Unparked::How::never);
  EXPECT_EQ(w.states(w.victim), "poisoned");
  EXPECT_EQ(w.at(w.victim).reserved(), 64 * MiB);
  EXPECT_EQ(w.state.host.entries, 9 * GiB) << "its bytes are still in host memory";
  EXPECT_EQ(w.resume().error().code, Code::PauseUnsafe);
  EXPECT_SAYS(w.resume().error().detail, "the driver says 2");
  EXPECT_EQ(w.pause().error().detail, w.resume().error().detail) << "nor is it paused";
  const std::string stop = "`sublet stop " + to_string(w.victim) + "`";
  EXPECT_SAYS(w.refusal(Release{w.victim}).hint, stop);
  EXPECT_SAYS(w.helps(w.victim), stop);
  EXPECT_EQ(w.signals(w.victim, false), 0);
  w.pass(10h);
  EXPECT_EQ(w.states(w.victim), "poisoned") << "never tried again, never killed";
  ASSERT_TRUE(w.accepts(Release{.lease = w.victim, .stop = true}));
  EXPECT_EQ(w.signals(w.victim, false), 1);
}

TEST(Pause, WhatSubletDidNotStartIsForItsOwnerToEnd) {
  TwoLeases w;
  Attach attach{w.victim, 0, w.at(w.victim).owner, true, {}};
  attach.owner.keeper = {};
  ASSERT_TRUE(w.accepts(attach));
  w.step(Grant{w.at(w.victim).uid, w.at(w.victim).consumer});
  w.measure(10 * GiB);
  const Release stop{.lease = w.victim, .stop = true};
  EXPECT_SAYS(w.refusal(stop).hint, "`kill 7`");
  w.settle_alone();
  w.resume();
  w.unparked(Unparked::How::never);
  ASSERT_EQ(w.states(w.victim), "poisoned");
  EXPECT_SAYS(w.refusal(stop).hint, "`kill -KILL 7`") << "its bytes in host memory would be nobody's";
  EXPECT_SAYS(w.helps(w.victim), "`kill -KILL 7` ends its program");
}

// Its restore fails for good, or its card has too little free memory, as the next daemon is told.
TEST(Pause, AStopOfWhatCanNeverComeBackIsCarriedOut) {
  for (const bool fails : {false, true}) {
    for (const bool revoke : {false, true}) {
      TwoLeases w;
      w.settle();
      if (fails) {
        w.leave();
      } else {
        w.rules.headroom = 15 * GiB;
        w.restart();
        w.measure({});
      }
      ASSERT_TRUE(w.accepts(Release{.lease = w.victim, .stop = !revoke, .revoke = revoke}));
      if (fails) w.unparked(Unparked::How::never);
      else w.measure({});
      EXPECT_EQ(w.states(w.victim), fails ? "poisoned" : "paused");
      EXPECT_TRUE(fails || w.reason(w.victim, ReasonKind::stopping_instead_of_return).has("most"));
      EXPECT_EQ(w.signals(w.victim, false), 1);
      w.pass(w.rules.grace);
      EXPECT_EQ(w.signals(w.victim, true), 1);
      w.step(ProgramEnded{w.victim, 137, true});
      EXPECT_EQ(w.at(w.victim).end_reason, EndReason::released);
    }
  }
}

TEST(Pause, OfWhomNoProgramIsOursTheLeaseEndsThen) {
  TwoLeases w;
  const LeaseId theirs = w.submit(wish(2 * GiB, "theirs"), true);
  Cooperation how;
  how.way = CooperationWay::webhook;
  how.address = "http://127.0.0.1/yield";
  w.step(Cooperate{theirs, 0, how});
  ASSERT_TRUE(w.accepts(Pause{theirs, 0, {}, plenty}));
  w.step(Release{.lease = theirs, .stop = true});
  w.step(AttemptEvent{theirs, Parked{true, {}, 1 * GiB}});
  w.measure(9 * GiB), w.measure(9 * GiB);
  ASSERT_EQ(w.states(theirs), "resuming");
  w.step(AttemptEvent{theirs, Unparked{Unparked::How::never, "it is gone"}});
  const ReasonArgs& ended = w.reason(theirs, ReasonKind::ended_unrestorable);
  EXPECT_EQ(ended.text("end"), "released");
  EXPECT_EQ(ended.text("detail"), "it is gone");
  EXPECT_EQ(ended.bytes("size"), 2 * GiB);
}

TEST(Pause, AStopWaitsForTheResumeUnlessByForce) {
  const struct {
    const char* name;
    bool settled, force;
  } rows[] = {{"paused", true, false}, {"paused, by force", true, true}, {"pausing, by force", false, true}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    TwoLeases w;
    if (row.settled) w.settle();
    else w.pause();
    EXPECT_EQ(w.refusal(Release{w.victim}).code, Code::PauseUnsafe);
    ASSERT_TRUE(w.accepts(Release{.lease = w.victim, .stop = true}));
    EXPECT_EQ(w.signals(w.victim, false), 0) << "it comes back first";
    if (row.force) {
      ASSERT_TRUE(w.accepts(Release{.lease = w.victim, .force = true, .stop = true}));
    } else {
      w.leave();
      w.unparked();
    }
    EXPECT_EQ(w.signals(w.victim, false), 1);
    w.pass(w.rules.grace);
    EXPECT_EQ(w.signals(w.victim, true), 1);
    w.step(ProgramEnded{w.victim, 143, true});
    EXPECT_EQ(w.at(w.victim).end_reason, EndReason::released);
    EXPECT_EQ(w.state.host.entries, Bytes{});
  }
}

TEST(Pause, ResumedWhileItYieldsItComesBackAfterwards) {
  TwoLeases w;
  w.leave();
  w.pause();
  ASSERT_TRUE(w.resume().has_value());
  EXPECT_EQ(w.ordered<Unpark>(), 0) << "never while the other order is out";
  w.yields();
  EXPECT_EQ(w.states(w.victim), "resuming");
  EXPECT_EQ(w.ordered<Unpark>(), 1);
}

}  // namespace
}  // namespace sublet::core::testing
