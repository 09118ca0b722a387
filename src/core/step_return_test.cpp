// SPDX-License-Identifier: Apache-2.0
// What comes back of a program that was paused, and what is known of it: after a restart, and after a pause that
// failed.
#include "core/pair.h"

namespace sublet::core::testing {
namespace {

TEST(Pause, WhatARestoreNeedsIsKnownForEachProcess) {
  Pair w;
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
  Pair undone;
  undone.pause();
  undone.restart();
  EXPECT_EQ(undone.state.to_restore(undone.at(undone.victim), uuid_of(0)).all, 9 * GiB) << "not all of its lease";
}

TEST(Pause, WhatWasNotMeasuredMayBeAllOfItsLease) {
  const auto room = [](const Pair& w) { return w.state.to_restore(w.at(w.victim), uuid_of(0)); };
  Pair unread;
  unread.restart();
  ASSERT_TRUE(unread.pause().has_value()) << "before anything was read again";
  EXPECT_EQ(room(unread).all, 10 * GiB);
  EXPECT_TRUE(room(unread).of.empty());
  unread.step(Parked{unread.victim, true, {}, 3 * GiB});
  EXPECT_EQ(room(unread).all, 10 * GiB) << "host memory grows less where nothing was written";
  Pair back;
  back.settle();
  back.step(Release{.lease = back.waiter, .force = true});
  back.resume();
  back.pass(1s);
  back.unparked();
  ASSERT_TRUE(back.pause().has_value()) << "before it is seen what it holds again";
  EXPECT_EQ(room(back).all, 10 * GiB);
}

TEST(Pause, WhoHeldMoreThanItsLeaseNeedsItAllToComeBack) {
  Pair w;
  w.measure(12 * GiB);
  w.pause();
  w.step(Parked{w.victim, true, {}, 20 * GiB});
  EXPECT_EQ(w.state.to_restore(w.at(w.victim), uuid_of(0)).all, 12 * GiB);
}

TEST(Pause, WhatAProgramHeldBeyondItsLeaseIsKnownAfterARestart) {
  Pair w;
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
  Pair w;
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
  Pair w;
  w.settle();
  w.step(Release{.lease = w.waiter, .force = true});
  w.resume();
  const auto fails = [&w](const std::string& detail, const std::string& code) {
    w.step(Unparked{w.victim, Unparked::How::not_yet, detail, {}, false, code});
    w.pass(10s);
  };
  const auto times_told = [&w] {
    return std::count_if(w.reasons.begin(), w.reasons.end(),
                         [](const Reason& r) { return contains(r.text, "it does not run yet"); });
  };
  fails("the helper ended", "helper");
  fails("the helper ended", "helper");
  EXPECT_EQ(times_told(), 1);
  fails("process 7 does not let itself be traced", "not_dumpable");
  EXPECT_EQ(times_told(), 2);
  EXPECT_SAYS(w.why(w.victim, "resuming"), "process 7 does not let itself be traced; tried again and again");
  EXPECT_EQ(w.state.not_back(w.victim), "process 7 does not let itself be traced");
  const auto helps = what_would_help(w.state, w.rules, w.at(w.victim), w.now);
  ASSERT_FALSE(helps.empty());
  EXPECT_SAYS(helps[0], "process 7 does not let itself be traced");
  w.unparked();
  EXPECT_TRUE(w.state.not_back(w.victim).empty());
}

TEST(Pause, WhoCannotBeRestoredCanBeGivenUpByHand) {
  Pair w;
  ASSERT_TRUE(w.pause().has_value());
  w.step(Touching{w.victim, {process(7), process(8)}});
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
  Pair w;
  w.pause();
  w.restart();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_EQ(w.ordered<Unpark>(), 1);
  w.unparked();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
}

TEST(Pause, ARestartKeepsWhatIsParked) {
  Pair w;
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
  Pair w;
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
  Pair w;
  w.settle();
  w.step(Release{.lease = w.waiter, .force = true});
  w.measure(16 * GiB);
  w.measure(16 * GiB);
  w.resume();
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming) << "nobody else is there";
  EXPECT_LT(w.free(0), Bytes{}) << "nor comes meanwhile";
}

TEST(Pause, WhatItTookWhileItWasPausedStandsInItsOwnWayAndItIsToldSo) {
  Pair w;
  w.settle();
  w.step(Release{.lease = w.waiter, .force = true});
  w.measure(3 * GiB);
  w.measure(3 * GiB);
  EXPECT_SAYS(w.why(w.victim, "relapsed"), "holds 3.0 GiB again");
  ASSERT_TRUE(w.resume().has_value());
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_EQ(w.state.to_restore(w.at(w.victim), uuid_of(0)).beside, 3 * GiB);
  EXPECT_EQ(w.free(0), 11 * GiB) << "the 10 GiB of its lease come back beside what it took";
  w.unparked(Unparked::How::not_yet);
  EXPECT_SAYS(w.why(w.victim, "resuming"), "took 3.0 GiB while it was paused, and 9.0 GiB are to come back");
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
  Pair w;
  w.settle();
  w.step(Release{.lease = w.waiter, .force = true});
  w.measure(3 * GiB);
  w.measure(3 * GiB);
  const LeaseId other = w.submit(12 * GiB);
  ASSERT_TRUE(w.at(other).reserves());
  ASSERT_TRUE(w.resume().has_value());
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused) << "9 GiB are free beside its 3, and 10 are to come back";
  EXPECT_SAYS(w.why(w.victim, "queued"), "needs 10.0 GiB again, and 3.0 GiB more for what its processes hold beyond");
  w.measure(2 * GiB);
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming) << "it gave one back";
  EXPECT_EQ(w.free(0), Bytes{});
  w.measure(12 * GiB);
  EXPECT_EQ(w.free(0), Bytes{}) << "as was foreseen";
  w.unparked();
  w.measure(9 * GiB);
  EXPECT_EQ(w.free(0), 2 * GiB);
}

}  // namespace
}  // namespace sublet::core::testing
