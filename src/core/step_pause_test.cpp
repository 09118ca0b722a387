// SPDX-License-Identifier: Apache-2.0
#include "core/testing/two_leases.h"

namespace sublet::core::testing {
namespace {

TEST(Pause, GivesItsRoomOnlyOnceTheBytesAreMeasuredGone) {
  TwoLeases w;
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing);
  EXPECT_EQ(w.ordered<Park>(), 1);
  EXPECT_EQ(w.state.ledger_entries(), 10 * GiB) << "entered before the asking: all it may hold";
  w.measure(Bytes{});
  w.measure(Bytes{});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing) << "what it held before it said that it yielded proves nothing";
  w.parked();
  EXPECT_EQ(w.state.ledger_entries(), 9 * GiB) << "settled with what was really parked";
  EXPECT_EQ(w.state.ledger_unsettled(), Bytes{});
  w.measure(Bytes{});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing) << "one snapshot is no proof";
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::queued);
  w.measure(Bytes{});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused);
  EXPECT_EQ(w.at(w.victim).reserved(), 64 * MiB) << "the residue";
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::active);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::paused).bytes("parked"), 9 * GiB);
  const auto helps = what_would_help(w.state, w.rules, w.at(w.victim), w.now);
  ASSERT_EQ(helps.size(), 1u);
  EXPECT_SAYS(helps[0], "`sublet resume " + to_string(w.victim) + "`");
}

TEST(Pause, ItsTimeIsCountedFromWhenItsRoomIsGivenAwayUntilItHasItAgain) {
  TwoLeases w;
  w.pass(1min);
  w.pause();
  w.pass(1s);
  w.parked();
  w.measure(Bytes{});
  w.measure(Bytes{});
  ASSERT_EQ(w.state_of(w.victim), LeaseState::paused);
  EXPECT_EQ(w.told(w.victim).parked_at, w.now);
  EXPECT_EQ(w.told(w.victim).parked_until(w.now), 0s) << "on the way out it holds its room";
  w.now = w.now + 10min;
  w.restart();
  EXPECT_EQ(w.at(w.victim).parked_until(w.now), 10min) << "over a restart too";
  w.step(Release{w.waiter});
  w.step(Resume{w.victim});
  w.measure(Bytes{});
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming);
  const Duration away = w.at(w.victim).parked_until(w.now);
  EXPECT_GE(away, 10min);
  EXPECT_EQ(w.at(w.victim).parked_at, std::nullopt);
  w.pass(30s);
  w.unparked();
  ASSERT_EQ(w.state_of(w.victim), LeaseState::active);
  EXPECT_EQ(w.at(w.victim).parked_until(w.now), away) << "while it is restored it has its room";
}

TEST(Pause, WhoEndsWhileItIsPausedWasPausedUntilThen) {
  TwoLeases w;
  w.pause();
  w.parked();
  w.measure(Bytes{});
  w.measure(Bytes{});
  w.now = w.now + 5min;
  w.step(ProgramEnded{w.victim, 0});
  const Lease& ended = w.told(w.victim);
  ASSERT_TRUE(ended.ended());
  EXPECT_EQ(ended.parked_for, 5min);
  EXPECT_EQ(ended.parked_until(w.now + 1h), 5min);
}

TEST(Pause, TimeAsleepIsNoTimeThatAMoveTook) {
  TwoLeases w;
  w.pause();
  w.now = w.now + 3h;
  w.step(ClockGap{.asleep = 3h});
  w.step(Parked{w.victim, true, {}, 9 * GiB});
  EXPECT_TRUE(w.last.learned.empty()) << "so far that is but said";
  w.measure(Bytes{});
  w.measure(Bytes{});
  ASSERT_EQ(w.last.learned.size(), 2U);
  EXPECT_EQ(w.last.learned[0].move, Move::pause);
  EXPECT_LT(w.last.learned[0].sample.took, 1min) << "else the next one would be given hours";

  TwoLeases undone;
  undone.pause();
  undone.now = undone.now + 3h;
  undone.step(ClockGap{.asleep = 3h});
  undone.step(Parked{undone.victim, false, "no"});
  undone.unparked();
  EXPECT_TRUE(undone.last.learned.empty()) << "an undone pause is no resume";
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
    w.step(Parked{id, true, {}, 9 * GiB});
    for (int proof = 0; proof < 2; ++proof) {
      w.pass(1s);
      w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
    }
    ASSERT_EQ(w.last.learned.size(), 2U);
    EXPECT_EQ(w.last.learned[0].device, count == 1 ? w.device_of(id) : std::string());
  }
}

TEST(Pause, LooksAgainAllTheTimeWhileItVerifies) {
  TwoLeases w;
  w.pause();
  w.parked();
  EXPECT_TRUE(w.wants_snapshot());
  w.pass(20ms);
  EXPECT_TRUE(w.wants_snapshot());
  EXPECT_LE(w.last.wake_at, w.now + 20ms);
}

TEST(Pause, ALiarIsUndoneAndNobodyIsGivenItsRoom) {
  TwoLeases w;
  w.pause();
  w.parked();
  for (int i = 0; i < 3; ++i) w.measure(9 * GiB);
  w.measure(Bytes{});
  w.measure(9 * GiB);  // back again: proofs count in a row only
  w.measure(Bytes{});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing);
  w.measure(9 * GiB);
  w.pass(30s);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_EQ(w.ordered<Unpark>(), 1);
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::queued);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::pause_unmeasured).duration("timeout"), 30s);
  w.unparked();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
  EXPECT_EQ(w.state.ledger_entries(), Bytes{});
  EXPECT_TRUE(w.state.costs().entries().empty()) << "a liar teaches nothing";
}

TEST(Pause, WhatCannotBeMeasuredIsNotVerified) {
  TwoLeases w;
  w.pause();
  w.parked();
  for (int i = 0; i < 4; ++i) {
    w.now = w.now + 20ms;
    DeviceReading reading = gpu(0, 24 * GiB);
    reading.problem = "the driver does not answer";
    w.snapshot({reading});
  }
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing);
  auto untold = uses(7, {}, w.victim);
  untold.used.reset();
  for (int i = 0; i < 4; ++i) w.now = w.now + 20ms, w.snapshot({gpu(0, 24 * GiB, {untold})});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing);
}

TEST(Pause, AMethodThatFailedIsUndoneUntilTheProgramRuns) {
  TwoLeases w;
  w.pause();
  w.step(Parked{w.victim, false, "pid 7 is traced"});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::pause_failed).text("detail"), "pid 7 is traced");
  EXPECT_TRUE(w.reason(w.victim, ReasonKind::pause_failed).flag("begun"));
  for (int tries = 1; tries <= 4; ++tries) {
    EXPECT_EQ(w.ordered<Unpark>(), tries);
    w.unparked(Unparked::How::not_yet);
    EXPECT_EQ(w.state_of(w.victim), LeaseState::resuming);
    w.pass(std::chrono::seconds(1 << (tries - 1)));
  }
  EXPECT_EQ(w.ordered<Unpark>(), 5);
  w.unparked();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
}

TEST(Pause, WhomTheDriverLocksIsStoredBeforeAndAllThatHasToComeBack) {
  TwoLeases w;
  EXPECT_FALSE(w.step(LockIntent{w.victim, {process(7)}}).outcome.has_value()) << "it is not asked to yield";
  w.pause();
  const auto touch = [&w](std::vector<ProcessRef> all) { return w.step(LockIntent{w.victim, std::move(all)}).outcome; };
  ASSERT_TRUE(touch({process(7)}).has_value());
  ASSERT_TRUE(touch({process(7), process(8)}).has_value()) << "one that came while the first was locked";
  EXPECT_EQ(w.ordered<Lock>(), 2);
  const std::vector<ProcessRef> both{process(7), process(8)};
  EXPECT_EQ(w.told(w.victim).parking->locked_processes, both);
  w.step(Parked{w.victim, false, "pid 8 uses managed memory"});
  EXPECT_EQ(w.newest_unpark().locked_processes, both) << "nobody knows how far that came";
  EXPECT_FALSE(touch({process(9)}).has_value()) << "too late";
  w.restart();
  EXPECT_EQ(w.newest_unpark().locked_processes, both) << "not who lives by now: who was touched";
  w.unparked();
  w.pause();
  EXPECT_EQ(w.at(w.victim).parking->locked_processes, std::vector<ProcessRef>{});
}

TEST(Pause, WhatIsUndoneAlreadyNeedsNoDriverToComeBack) {
  TwoLeases w;
  w.pause();
  w.step(LockIntent{w.victim, {process(7)}});
  w.step(Parked{w.victim, false, "its work was not done in time", {}, true});
  EXPECT_EQ(w.newest_unpark().locked_processes, std::vector<ProcessRef>{});
  TwoLeases never;  // and so it is when the daemon ends before anybody is locked
  never.pause();
  never.restart();
  EXPECT_EQ(never.newest_unpark().locked_processes, std::vector<ProcessRef>{});
}

TEST(Pause, ComesBackInItsTurnAndIntoItsOwnRoom) {
  TwoLeases w;
  w.settle();
  ASSERT_TRUE(w.resume().has_value());
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused);
  EXPECT_EQ(w.state.queue().place(w.victim), 1u);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::return_queued).number("place"), 1);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::return_queued).bytes("vram"), 10 * GiB);
  const LeaseId later = w.submit(wish(5 * GiB), true);
  EXPECT_EQ(w.state_of(later), LeaseState::queued);
  w.step(Release{w.waiter});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_EQ(w.at(w.victim).reserved(), 10 * GiB) << "reserved before anything is restored";
  EXPECT_EQ(w.ordered<Unpark>(), 1);
  w.unparked();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
  EXPECT_EQ(w.state.ledger_entries(), Bytes{});
  EXPECT_EQ(w.at(w.victim).expires_at, w.now + 1h) << "its time starts whole";
}

TEST(Pause, WhatWasJustGivenBackIsInUseThoughNotMeasuredYet) {
  TwoLeases w;
  w.settle();
  w.step(Release{w.waiter});
  w.resume();
  w.now = w.now + 1ms;
  w.unparked();
  EXPECT_TRUE(w.wants_snapshot());
  EXPECT_EQ(w.step(Release{w.victim}).outcome.error().code, Code::InUse);
  w.measure(Bytes{});
  EXPECT_TRUE(w.step(Release{w.victim}).outcome.has_value());
}

TEST(Pause, ItsTimeStandsStillMeanwhile) {
  TwoLeases w;
  w.settle();
  w.pass(5h);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused);
}

TEST(Pause, AnUnleasedProcessInItsRoomIsWaitedFor) {
  TwoLeases w;
  w.settle();
  w.step(Release{w.waiter});
  w.measure(Bytes{}, 20 * GiB);
  w.resume();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused);
  EXPECT_EQ(w.ordered<Unpark>(), 0) << "a restore without room is final: none is tried";
  EXPECT_SAYS(w.reason(w.victim, ReasonKind::return_queued).parts("holders").at(0).what, "pid 99");
  w.measure(Bytes{});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::resuming);
}

TEST(Pause, WhatTheDriverKeepsOfItStandsInNobodysWay) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  const Bytes all = State::capacity(w.state.devices().begin()->second, w.rules);
  const LeaseId whole = w.run(all, 7, "train", 1h);
  const auto measure = [&](Bytes used, Bytes hidden) {
    w.now = w.now + 20ms;
    std::vector<ProcessUse> processes;
    if (used > Bytes{}) processes.push_back(uses(7, used, whole));
    w.snapshot({gpu(0, 24 * GiB, std::move(processes), hidden)});
  };
  measure(20 * GiB, {});
  ASSERT_TRUE(w.step(Pause{whole, 0, {}, plenty}).outcome.has_value());
  w.step(Parked{whole, true, {}, 20 * GiB});
  measure({}, 4 * MiB);
  measure({}, 4 * MiB);
  ASSERT_EQ(w.state_of(whole), LeaseState::paused);
  EXPECT_EQ(w.state.devices().begin()->second.other, Bytes{}) << "it is part of the residue";
  measure({}, 80 * MiB);
  EXPECT_EQ(w.state.devices().begin()->second.other, 16 * MiB) << "and so much the residue is not";
  measure({}, 4 * MiB);
  ASSERT_TRUE(w.step(Resume{whole}).outcome.has_value());
  EXPECT_EQ(w.state_of(whole), LeaseState::resuming);
  EXPECT_EQ(w.state.devices().begin()->second.other, Bytes{}) << "until it holds its bytes again";
}

TEST(Pause, ARestoreThatFailedForGoodIsKeptAndTold) {
  TwoLeases w;
  w.settle();
  w.step(Release{w.waiter});
  w.resume();
  w.unparked(Unparked::How::never);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::poisoned);
  EXPECT_EQ(w.at(w.victim).reserved(), 64 * MiB);
  EXPECT_EQ(w.state.ledger_entries(), 9 * GiB) << "its bytes are still in host memory";
  EXPECT_EQ(w.resume().error().code, Code::PauseUnsafe);
  EXPECT_SAYS(w.resume().error().detail, "the driver can never restore it: the driver says 2");
  EXPECT_EQ(w.pause().error().detail, w.resume().error().detail) << "nor is it paused";
  const auto released = w.step(Release{w.victim}).outcome;
  EXPECT_SAYS(released.error().hint, "`sublet stop " + to_string(w.victim) + "`");
  const auto helps = what_would_help(w.state, w.rules, w.at(w.victim), w.now);
  ASSERT_EQ(helps.size(), 1U);
  EXPECT_SAYS(helps[0], "`sublet stop " + to_string(w.victim) + "` ends its program");
  EXPECT_EQ(w.signals(w.victim, false), 0);
  w.pass(10h);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::poisoned) << "never tried again, never killed";
  ASSERT_TRUE(w.step(Release{.lease = w.victim, .stop = true}).outcome.has_value());
  EXPECT_EQ(w.signals(w.victim, false), 1);
}

TEST(Pause, WhatSubletDidNotStartIsForItsOwnerToEnd) {
  TwoLeases w;
  Attach attach{w.victim, 0, w.at(w.victim).owner, true, {}};
  const std::string pid = std::to_string(attach.owner.process.pid);
  attach.owner.keeper = {};
  ASSERT_TRUE(w.step(attach).outcome.has_value());
  w.step(Grant{w.at(w.victim).uid, w.at(w.victim).consumer});
  w.measure(10 * GiB);
  EXPECT_SAYS(w.step(Release{.lease = w.victim, .stop = true}).outcome.error().hint,
              "end them first (`kill " + pid + "`)");
  w.settle();
  w.step(Release{w.waiter});
  w.resume();
  w.unparked(Unparked::How::never);
  ASSERT_EQ(w.state_of(w.victim), LeaseState::poisoned);
  const auto stopped = w.step(Release{.lease = w.victim, .stop = true}).outcome;
  ASSERT_FALSE(stopped.has_value()) << "its bytes in host memory would be nobody's";
  EXPECT_SAYS(stopped.error().hint, "`kill -KILL " + pid + "`");
  EXPECT_SAYS(what_would_help(w.state, w.rules, w.at(w.victim), w.now).at(0),
              "`kill -KILL " + pid + "` ends its program");
}

TEST(Pause, AStopThatWaitedForARestoreThatFailedForGoodIsCarriedOut) {
  for (const bool revoke : {false, true}) {
    TwoLeases w;
    w.settle();
    w.step(Release{w.waiter});
    ASSERT_TRUE(w.step(Release{.lease = w.victim, .stop = !revoke, .revoke = revoke}).outcome.has_value());
    w.unparked(Unparked::How::never);
    ASSERT_EQ(w.state_of(w.victim), LeaseState::poisoned);
    EXPECT_EQ(w.signals(w.victim, false), 1);
    w.pass(w.rules.grace);
    EXPECT_EQ(w.signals(w.victim, true), 1);
    w.step(ProgramEnded{w.victim, 137, true});
    EXPECT_EQ(w.at(w.victim).end_reason, EndReason::released);
  }
}

TEST(Pause, OfWhomNoProgramIsOursTheLeaseEndsThen) {
  TwoLeases w;
  Lease token = wish(2 * GiB, "theirs");
  token.owner.kind = OwnerKind::token;
  const LeaseId theirs = w.submit(token, true);
  Cooperation how;
  how.way = CooperationWay::webhook;
  how.address = "http://127.0.0.1/yield";
  w.step(Cooperate{theirs, 0, how});
  ASSERT_TRUE(w.step(Pause{theirs, 0, {}, plenty}).outcome.has_value());
  w.step(Release{.lease = theirs, .stop = true});
  w.step(Parked{theirs, true, {}, 1 * GiB});
  w.measure(9 * GiB);
  w.measure(9 * GiB);
  ASSERT_EQ(w.state_of(theirs), LeaseState::resuming);
  w.step(Unparked{theirs, Unparked::How::never, "it is gone"});
  const ReasonArgs& ended = w.reason(theirs, ReasonKind::ended_unrestorable);
  EXPECT_EQ(ended.text("end"), "released");
  EXPECT_EQ(ended.text("detail"), "it is gone");
  EXPECT_EQ(ended.bytes("size"), 2 * GiB);
}

TEST(Pause, WhatCanNeverComeBackIsEndedAsItIs) {
  for (const bool revoke : {false, true}) {
    TwoLeases w;
    w.settle();
    w.rules.headroom = 15 * GiB;  // as the next daemon is told
    w.restart();
    w.measure(Bytes{});
    ASSERT_TRUE(w.step(Release{.lease = w.victim, .stop = !revoke, .revoke = revoke}).outcome.has_value());
    w.measure(Bytes{});
    EXPECT_EQ(w.signals(w.victim, false), 1);
    EXPECT_TRUE(w.reason(w.victim, ReasonKind::stopping_instead_of_return).has("most"));
    w.pass(w.rules.grace);
    EXPECT_EQ(w.signals(w.victim, true), 1);
  }
}

TEST(Pause, AStopByForceDoesNotWaitForTheResume) {
  TwoLeases w;
  w.settle();  // and another has its room for as long as it likes
  ASSERT_TRUE(w.step(Release{.lease = w.victim, .stop = true}).outcome.has_value());
  EXPECT_EQ(w.signals(w.victim, false), 0) << "it comes back first";
  ASSERT_TRUE(w.step(Release{.lease = w.victim, .force = true, .stop = true}).outcome.has_value());
  EXPECT_EQ(w.signals(w.victim, false), 1);
  w.pass(w.rules.grace);
  EXPECT_EQ(w.signals(w.victim, true), 1);
}

TEST(Pause, AStopByForceDoesNotWaitUntilItHasYielded) {
  TwoLeases w;
  ASSERT_TRUE(w.pause().has_value());
  ASSERT_TRUE(w.step(Release{.lease = w.victim, .stop = true}).outcome.has_value());
  EXPECT_EQ(w.signals(w.victim, false), 0) << "it comes back first";
  ASSERT_TRUE(w.step(Release{.lease = w.victim, .force = true, .stop = true}).outcome.has_value());
  EXPECT_EQ(w.signals(w.victim, false), 1);
  w.step(ProgramEnded{w.victim, 143, true});
  EXPECT_EQ(w.at(w.victim).end_reason, EndReason::released);
  EXPECT_EQ(w.state.ledger_entries(), Bytes{});
}

TEST(Pause, StoppingWaitsForTheResume) {
  TwoLeases w;
  w.settle();
  EXPECT_EQ(w.step(Release{w.victim}).outcome.error().code, Code::PauseUnsafe);
  ASSERT_TRUE(w.step(Release{.lease = w.victim, .stop = true}).outcome.has_value());
  EXPECT_EQ(w.signals(w.victim, false), 0);
  w.step(Release{w.waiter});
  w.unparked();
  EXPECT_EQ(w.signals(w.victim, false), 1);
}

TEST(Pause, DyingWhileParkedFreesLedgerAndResidue) {
  TwoLeases w;
  w.settle();
  w.step(ProgramEnded{w.victim, 137, true});
  EXPECT_EQ(w.state.ledger_entries(), Bytes{});
  EXPECT_EQ(w.told(w.victim).end_reason, EndReason::owner_gone);
  w.measure(Bytes{});
  EXPECT_EQ(w.free(0), 4 * GiB);
  EXPECT_TRUE(w.gone(w.victim));
}

TEST(Pause, WhatHostMemoryCannotTakeIsNotBegun) {
  TwoLeases w;
  const auto refused = w.pause({10 * GiB, std::nullopt});  // 2 GiB of it are kept free
  EXPECT_EQ(refused.error().code, Code::HostMemory);
  EXPECT_SAYS(refused.error().detail, "holds 10.0 GiB, and host memory takes 8.0 GiB more");
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
  EXPECT_EQ(w.pause({64 * GiB, 4 * GiB}).error().code, Code::HostMemory) << "the cgroup has a limit";
  w.rules.ledger_limit = 5 * GiB;
  EXPECT_EQ(w.pause().error().code, Code::HostMemory);
  EXPECT_EQ(w.ordered<Park>(), 0);
}

TEST(Pause, OnlyProgramsThatLetThemselvesBePaused) {
  TwoLeases w;
  EXPECT_EQ(w.step(Pause{w.waiter, 0, {}, plenty}).outcome.error().code, Code::Stale) << "it waits";
  const LeaseId by_token = w.submit(wish(GiB));
  EXPECT_EQ(w.step(Pause{by_token, 0, {}, plenty}).outcome.error().code, Code::PauseUnsafe);
  Lease pinned = wish(GiB);
  pinned.pausable = Pausable::no;
  const LeaseId id = w.submit(pinned);
  EXPECT_SAYS(w.step(Pause{id, 0, {}, plenty}).outcome.error().detail, "pinned");
}

TEST(Pause, ResumedWhileItYieldsItComesBackAfterwards) {
  TwoLeases w;
  w.step(Release{w.waiter});
  w.pause();
  ASSERT_TRUE(w.resume().has_value());
  EXPECT_EQ(w.ordered<Unpark>(), 0) << "never while the other order is out";
  w.parked();
  w.measure(Bytes{});
  w.measure(Bytes{});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_EQ(w.ordered<Unpark>(), 1);
}

}  // namespace
}  // namespace sublet::core::testing
