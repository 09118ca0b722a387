// SPDX-License-Identifier: Apache-2.0
// The return of a paused program, and what is known of it: after a restart, and after a pause that failed.
#include "core/testing/two_leases.h"

namespace sublet::core::testing {
namespace {

TEST(Pause, WhatARestoreNeedsIsKnownForEachProcess) {
  TwoLeases w;
  const auto room = [&w] { return w.state.to_restore(w.at(w.victim), uuid_of(0)); };
  w.now = w.now + 20ms;
  w.snapshot({gpu(0, 24 * GiB, {uses(7, 3 * GiB, w.victim), uses(8, 6 * GiB, w.victim)})});
  w.pause();
  EXPECT_EQ(room().all, 9 * GiB) << "not the ten that it might have taken";
  EXPECT_EQ(room().of, (std::map<ProcessRef, Bytes>{{process(7), 3 * GiB}, {process(8), 6 * GiB}}));
  w.step(Parked{w.victim, true, {}, 8 * GiB});
  EXPECT_EQ(room().all, 9 * GiB) << "host memory grows less where nothing was written";
  w.measure(Bytes{});
  w.measure(Bytes{});
  w.restart();
  EXPECT_EQ(room().all, 9 * GiB) << "and so after a restart";
  EXPECT_EQ(room().of.size(), 2U);
  TwoLeases undone;
  undone.pause();
  undone.restart();
  EXPECT_EQ(undone.state.to_restore(undone.at(undone.victim), uuid_of(0)).all, 9 * GiB) << "not all of its lease";
}

TEST(Pause, WhatComesBackUnlistedIsOfWhomIsBroughtBack) {
  TwoLeases w;
  w.settle();
  w.step(Release{w.waiter});
  w.resume();
  const auto read = [&w](std::vector<ProcessUse> processes, Bytes unlisted) {
    w.now = w.now + 20ms;
    w.snapshot({gpu(0, 24 * GiB, std::move(processes), unlisted)});
    return w.state.devices().begin()->second;
  };
  EXPECT_EQ(read({}, 4 * MiB).other, Bytes{});
  EXPECT_EQ(read({}, 5 * GiB).other, Bytes{});
  EXPECT_EQ(read({}, 9 * GiB + 64 * MiB).other, 64 * MiB) << "no more than is to come";
  EXPECT_EQ(w.free(0), 24 * GiB - w.rules.headroom - 10 * GiB - 64 * MiB);
  EXPECT_LE(read({uses(7, 2 * GiB, w.victim)}, 7 * GiB).other, 64 * MiB);
  EXPECT_EQ(read({uses(7, 9 * GiB, w.victim)}, {}).other, Bytes{});
  EXPECT_EQ(read({uses(7, 9 * GiB, w.victim)}, 2 * GiB).other, 2 * GiB) << "it has all of it";
  w.unparked();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
}

// An empty list on a card that is more than half full is believed as far as that is of those who are brought back.
TEST(Pause, ACardIsKnownWhileTheOnlyOneThereIsBroughtBack) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  const LeaseId large = w.run(20 * GiB, 7, "train", 1h);
  const auto read = [&](std::vector<ProcessUse> processes, Bytes unlisted) {
    w.now = w.now + 20ms;
    w.snapshot({gpu(0, 24 * GiB, std::move(processes), unlisted)});
    return w.state.devices().begin()->second.problem;
  };
  read({uses(7, 18 * GiB, large)}, {});
  ASSERT_TRUE(w.step(Pause{large, 0, {}, plenty}).outcome.has_value());
  w.step(Parked{large, true, {}, 18 * GiB});
  read({}, {}), read({}, {});
  ASSERT_EQ(w.state_of(large), LeaseState::paused);
  EXPECT_SAYS(read({}, 18 * GiB),
              "18.0 GiB of 24.0 GiB are used and no process is listed: the list cannot be complete");
  read({}, {});
  ASSERT_TRUE(w.step(Resume{large}).outcome.has_value());
  EXPECT_EQ(read({}, 18 * GiB), "");
  EXPECT_EQ(w.state.devices().begin()->second.other, Bytes{});
}

TEST(Pause, WhoEndsMeanwhileKeepsWhatItHasUntilThatIsGone) {
  TwoLeases w;
  const LeaseId other = w.run(6 * GiB, 8, "infer", 1h);
  w.settle();
  w.step(Release{w.waiter});
  const auto read = [&w](std::vector<ProcessUse> processes, Bytes unlisted) {
    w.now = w.now + 20ms;
    w.snapshot({gpu(0, 24 * GiB, std::move(processes), unlisted)});
    return w.state.devices().begin()->second.other;
  };
  read({uses(8, 6 * GiB, other)}, {});
  w.resume();
  w.step(ProgramEnded{other, 0, {}});
  read({}, 6 * GiB);
  EXPECT_LE(w.free(0), 8 * GiB - w.rules.headroom + 64 * MiB) << "off the list, and not off the card";
  read({}, 10 * GiB);
  EXPECT_LE(w.free(0), 8 * GiB - w.rules.headroom + 64 * MiB) << "and four are back";
}

TEST(Pause, ASlowLinkIsGivenTheTimeThatItTookTheNextTime) {
  TwoLeases w;
  const auto newest = [&w] {
    Park found;
    for (const Action& action : w.actions)
      if (const auto* park = std::get_if<Park>(&action)) found = *park;
    return found;
  };
  w.step(Release{.lease = w.waiter, .force = true});
  w.pause();
  const Duration given_up = newest().give_up;
  w.pass(given_up);
  Parked late{w.victim, false, "the driver has not returned"};
  late.stuck = true;
  w.step(late);
  w.step(Unparked{.lease = w.victim, .how = Unparked::How::not_yet, .detail = "it has not returned", .code = "stuck"});
  w.pass(30s);
  w.step(DriverReturned{w.victim});
  w.unparked();
  ASSERT_EQ(w.state_of(w.victim), LeaseState::active);
  w.pass(10min);
  w.measure(9 * GiB);
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_GT(newest().give_up, given_up + 30s) << "else it would be undone again and again";
  EXPECT_GT(newest().at_most, given_up) << "and is no longer stuck before it can be done";
}

TEST(Pause, WhatWasNotMeasuredMayBeAllOfItsLease) {
  const auto room = [](const TwoLeases& w) { return w.state.to_restore(w.at(w.victim), uuid_of(0)); };
  TwoLeases unread;
  unread.restart();
  ASSERT_TRUE(unread.pause().has_value()) << "before anything was read again";
  EXPECT_EQ(room(unread).all, 10 * GiB);
  EXPECT_TRUE(room(unread).of.empty());
  unread.step(Parked{unread.victim, true, {}, 3 * GiB});
  EXPECT_EQ(room(unread).all, 10 * GiB) << "host memory grows less where nothing was written";
  TwoLeases back;
  back.settle();
  back.step(Release{.lease = back.waiter, .force = true});
  back.resume();
  back.pass(1s);
  back.unparked();
  ASSERT_TRUE(back.pause().has_value()) << "before it is seen what it holds again";
  EXPECT_EQ(room(back).all, 10 * GiB);
}

// The residue that it keeps meanwhile is part of the request.
TEST(Pause, WhoComesBackRequestsItsWholeSize) {
  TwoLeases w;
  w.settle();
  ASSERT_TRUE(w.resume().has_value());
  ASSERT_GT(w.state.queue().place(w.victim), 0U);
  EXPECT_EQ(w.state.queue().waiting_bytes(), 10 * GiB);
}

TEST(Pause, WhoHeldMoreThanItsLeaseNeedsItAllToComeBack) {
  TwoLeases w;
  w.measure(12 * GiB);
  w.pause();
  w.step(Parked{w.victim, true, {}, 20 * GiB});
  EXPECT_EQ(w.state.to_restore(w.at(w.victim), uuid_of(0)).all, 12 * GiB);
}

TEST(Pause, WhatAProgramHeldBeyondItsLeaseIsKnownAfterARestart) {
  TwoLeases w;
  w.step(Release{.lease = w.waiter, .force = true});
  w.measure(13 * GiB);
  ASSERT_TRUE(w.pause().has_value());
  w.parked();
  w.measure(Bytes{});
  w.measure(Bytes{});
  ASSERT_EQ(w.state_of(w.victim), LeaseState::paused);
  const LeaseId other = w.submit(12 * GiB);
  w.restart();
  w.measure(Bytes{});
  w.resume();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused) << "12 GiB are free, and 13 come back";
  w.measure(2 * GiB);
  w.step(Release{.lease = other, .force = true});
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_EQ(w.free(0), 9 * GiB) << "and the two that it took since";
  w.restart();
  w.measure(2 * GiB);
  EXPECT_EQ(w.free(0), 9 * GiB);
  EXPECT_EQ(w.state.to_restore(w.at(w.victim), uuid_of(0)).all, 13 * GiB);
  EXPECT_EQ(w.state.to_restore(w.at(w.victim), uuid_of(0)).beside, 2 * GiB);
  w.unparked();
  w.measure(9 * GiB);
  EXPECT_EQ(w.free(0), 14 * GiB);
}

TEST(Pause, WhatComesBackOfAPauseThatFailsIsPromisedToNobody) {
  TwoLeases w;
  w.step(Release{.lease = w.waiter, .force = true});
  w.measure(13 * GiB);
  ASSERT_TRUE(w.pause().has_value());
  w.measure(2 * GiB);
  EXPECT_EQ(w.free(0), 11 * GiB) << "it may be undone";
  w.step(Parked{w.victim, false, "pid 8 cannot be parked"});
  w.measure(2 * GiB);
  EXPECT_EQ(w.free(0), 11 * GiB);
  w.restart();
  w.measure(2 * GiB);
  EXPECT_EQ(w.free(0), 11 * GiB);
  w.unparked();
  EXPECT_EQ(w.free(0), 11 * GiB) << "until it is measured";
  w.measure(9 * GiB);
  EXPECT_EQ(w.free(0), 14 * GiB);
}

TEST(Pause, WhyItDoesNotRunAgainIsToldWheneverItIsAnotherReason) {
  TwoLeases w;
  w.settle();
  w.step(Release{.lease = w.waiter, .force = true});
  w.resume();
  const auto fails = [&w](const std::string& detail, const std::string& code) {
    w.step(Unparked{w.victim, Unparked::How::not_yet, detail, {}, false, code});
    w.pass(10s);
  };
  fails("the helper ended", "helper");
  fails("the helper ended", "helper");
  EXPECT_EQ(w.times_told(w.victim, ReasonKind::resume_failed), 1);
  fails("process 7 does not let itself be traced", "not_dumpable");
  EXPECT_EQ(w.times_told(w.victim, ReasonKind::resume_failed), 2);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::resume_failed).text("detail"), w.state.not_back(w.victim));
  EXPECT_EQ(w.state.not_back(w.victim), "process 7 does not let itself be traced");
  const auto helps = what_would_help(w.state, w.rules, w.at(w.victim), w.now);
  ASSERT_FALSE(helps.empty());
  EXPECT_SAYS(helps[0], "process 7 does not let itself be traced");
  w.unparked();
  EXPECT_TRUE(w.state.not_back(w.victim).empty());
}

TEST(Pause, WhoCannotBeRestoredCanBeGivenUpByHand) {
  TwoLeases w;
  ASSERT_TRUE(w.pause().has_value());
  w.step(LockIntent{w.victim, {process(7), process(8)}});
  w.step(Parked{w.victim, false, "process 8 does not let itself be traced"});
  w.step(Unparked{w.victim, Unparked::How::not_yet, "process 8 does not let itself be traced", {}, false, "no_right"});
  const auto helps = what_would_help(w.state, w.rules, w.at(w.victim), w.now);
  ASSERT_EQ(helps.size(), 2U);
  EXPECT_SAYS(helps[1], "kill -KILL 7 8");
  w.pass(1s);
  w.step(Unparked{w.victim, Unparked::How::not_yet, "there is no room", {}, true, "no_room"});
  EXPECT_EQ(what_would_help(w.state, w.rules, w.at(w.victim), w.now).size(), 1U) << "room comes by itself";
}

TEST(Pause, ARestartUndoesWhatWasHalfDone) {
  TwoLeases w;
  w.pause();
  w.restart();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_EQ(w.ordered<Unpark>(), 1);
  w.unparked();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
}

TEST(Pause, ARestartKeepsWhatIsParked) {
  TwoLeases w;
  w.settle();
  w.resume();
  w.restart();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused);
  EXPECT_EQ(w.state.ledger_entries(), 9 * GiB);
  EXPECT_EQ(w.state.queue().place(w.victim), 1u);
  w.measure(Bytes{});
  EXPECT_EQ(w.at(w.victim).reserved(), 64 * MiB);
  w.step(Release{w.waiter});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::resuming);
  w.restart();
  EXPECT_EQ(w.ordered<Unpark>(), 2) << "the order may have been lost";
}

TEST(Pause, WhoHeldMoreThanItsLeaseGetsThatBackToo) {
  TwoLeases w;
  w.step(Release{.lease = w.waiter, .force = true});
  w.measure(13 * GiB);
  ASSERT_TRUE(w.pause().has_value());
  w.parked();
  w.measure(Bytes{});
  w.measure(Bytes{});
  ASSERT_EQ(w.state_of(w.victim), LeaseState::paused);
  const LeaseId other = w.submit(12 * GiB);
  w.resume();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused);
  w.step(Release{.lease = other, .force = true});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_EQ(w.free(0), 11 * GiB);
}

TEST(Pause, WhoNeedsMoreThanThereIsComesBackWhereNobodyElseIsPromisedAnything) {
  TwoLeases w;
  w.settle();
  w.step(Release{.lease = w.waiter, .force = true});
  w.measure(16 * GiB);
  w.measure(16 * GiB);
  w.resume();
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming) << "nobody else is there";
  EXPECT_LT(w.free(0), Bytes{}) << "nor comes meanwhile";
}

TEST(Pause, WhatItTookWhileItWasPausedStandsInItsOwnWayAndItIsToldSo) {
  TwoLeases w;
  w.settle();
  w.step(Release{.lease = w.waiter, .force = true});
  w.measure(3 * GiB);
  w.measure(3 * GiB);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::allocated_while_paused).bytes("holds"), 3 * GiB);
  ASSERT_TRUE(w.resume().has_value());
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_EQ(w.state.to_restore(w.at(w.victim), uuid_of(0)).beside, 3 * GiB);
  EXPECT_EQ(w.free(0), 11 * GiB) << "the 10 GiB of its lease come back beside what it took";
  w.unparked(Unparked::How::not_yet);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::resume_failed).bytes("beside"), 3 * GiB);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::resume_failed).bytes("parked"), 9 * GiB);
  w.measure(Bytes{});
  w.pass(1s);
  EXPECT_EQ(w.ordered<Unpark>(), 2) << "tried again";
  w.unparked();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
  EXPECT_EQ(w.free(0), 11 * GiB) << "what it holds now is not measured yet";
  w.measure(10 * GiB);
  EXPECT_EQ(w.free(0), 14 * GiB);
}

TEST(Pause, WhatItTookWhileItWasPausedComesBackIntoNobodysRoom) {
  TwoLeases w;
  w.settle();
  w.step(Release{.lease = w.waiter, .force = true});
  w.measure(3 * GiB);
  w.measure(3 * GiB);
  const LeaseId other = w.submit(12 * GiB);
  ASSERT_TRUE(w.at(other).reserves());
  ASSERT_TRUE(w.resume().has_value());
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused) << "9 GiB are free beside its 3, and 10 are to come back";
  EXPECT_EQ(w.reason(w.victim, ReasonKind::return_queued).bytes("beyond"), 3 * GiB);
  w.measure(2 * GiB);
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming) << "it gave one back";
  EXPECT_EQ(w.free(0), Bytes{});
  w.measure(12 * GiB);
  EXPECT_EQ(w.free(0), Bytes{}) << "as was foreseen";
  w.unparked();
  w.measure(9 * GiB);
  EXPECT_EQ(w.free(0), 2 * GiB);
}

// Some of its processes may have been restored before the driver failed another.
TEST(Poisoned, TheRoomOfWhatFailedForGoodIsNobodysBeforeItIsMeasured) {
  for (const Bytes left : {Bytes{}, 4 * GiB}) {
    TwoLeases w;
    w.settle();
    w.step(Release{w.waiter});
    w.resume();
    const LeaseId next = w.submit(wish(22 * GiB, "next"), true);
    ASSERT_EQ(w.state_of(next), LeaseState::queued);
    w.unparked(Unparked::How::never);
    ASSERT_EQ(w.state_of(w.victim), LeaseState::poisoned);
    EXPECT_TRUE(w.wants_snapshot());
    EXPECT_EQ(w.state_of(next), LeaseState::queued) << "nobody knows yet what it has taken again";
    w.measure(left);
    EXPECT_EQ(w.state_of(next), left > Bytes{} ? LeaseState::queued : LeaseState::active);
    EXPECT_EQ(w.state.charged(w.at(w.victim), uuid_of(0)), std::max(left, w.at(w.victim).parking->residue));
  }
}

TEST(Poisoned, NorIsItWhereItsLeaseEndsBeforeThat) {
  TwoLeases w;
  w.settle();
  w.step(Release{w.waiter});
  w.resume();
  const LeaseId next = w.submit(wish(22 * GiB, "next"), true);
  w.unparked(Unparked::How::never);
  ASSERT_EQ(w.state_of(w.victim), LeaseState::poisoned);
  w.step(ProgramEnded{w.victim, 137, true});
  EXPECT_EQ(w.state_of(next), LeaseState::queued) << "what it took again may still be there";
  w.measure({});
  EXPECT_EQ(w.state_of(next), LeaseState::active);
}

}  // namespace
}  // namespace sublet::core::testing
