// SPDX-License-Identifier: Apache-2.0
// Programs that the driver cannot park, and what has changed of one by the time it is locked.
#include "core/testing/two_leases.h"

namespace sublet::core::testing {
namespace {

// It was asked of the driver, and came back so.
void refuse(TwoLeases& w, Unfit unfit, std::string why) {
  ASSERT_TRUE(w.pause().has_value());
  w.step(AttemptEvent{w.victim, Parked{false, std::move(why), {}, true, unfit}});
  w.unparked();
  ASSERT_EQ(w.states(w.victim), "active");
}

TEST(Unfit, WhatTheDriverCannotParkIsNotAskedAgain) {
  TwoLeases w;
  refuse(w, Unfit::never, "pid 7 uses managed memory");
  EXPECT_LT(w.trust("train"), 1);
  EXPECT_EQ(w.pause().error().code, Code::PauseUnsafe);
  EXPECT_SAYS(w.pause().error().detail, "pid 7 uses managed memory");
  EXPECT_EQ(w.ordered<Park>(), 1);
  w.step(Grant{w.at(w.victim).uid, "train", true});
  EXPECT_FALSE(w.pause().has_value()) << "no word changes what it uses";
  w.pass(30min);
  EXPECT_FALSE(w.pause().has_value());
  Cooperation how;
  how.process = process(7);
  ASSERT_TRUE(w.accepts(Cooperate{w.victim, 0, how}));
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_EQ(w.at(w.victim).parking->method, PauseMethod::cooperative) << "yielding by itself is left";
}

TEST(Unfit, TheWordOfItsOwnerLiftsWhatOnlyHeCanAnswerFor) {
  TwoLeases w;
  refuse(w, Unfit::unvouched, "nobody can see whether process 7 uses managed memory");
  EXPECT_EQ(w.trust("train"), 1) << "nothing was tried";
  EXPECT_SAYS(w.pause().error().hint, "sublet pause --grant train");
  w.step(Grant{w.at(w.victim).uid + 1, "train", true});
  w.step(Grant{w.at(w.victim).uid, "other", true});
  EXPECT_FALSE(w.pause().has_value());
  w.step(Grant{w.at(w.victim).uid, "train", true});
  EXPECT_TRUE(w.pause().has_value());
}

TEST(Unfit, ARestartOfTheDaemonForgetsNothingOfIt) {
  for (const Unfit unfit : {Unfit::never, Unfit::unvouched}) {
    TwoLeases w;
    refuse(w, unfit, "it may use managed memory");
    w.restart();
    w.measure(10 * GiB);
    const auto again = w.pause();
    ASSERT_FALSE(again.has_value());
    EXPECT_SAYS(again.error().detail, "it may use managed memory");
    EXPECT_EQ(w.ordered<Park>(), 1);
    w.step(Grant{w.at(w.victim).uid, "train", true});
    EXPECT_EQ(w.last.changed.size(), unfit == Unfit::unvouched ? 1U : 0U);
    w.state = State::load(w.stored(), {}, w.state.leases.last_id, w.rules, w.now, {}, w.state.learned.grants);
    w.step(Tick{});
    w.measure(10 * GiB);
    EXPECT_EQ(w.pause().has_value(), unfit == Unfit::unvouched) << "nor that its owner answers for it";
  }
}

TEST(Unfit, AnotherProgramIsAskedAnew) {
  TwoLeases w;
  refuse(w, Unfit::never, "pid 7 uses managed memory");
  Attach attach{w.victim, 0, w.at(w.victim).owner, true, {}};
  attach.owner.keeper = process(70);
  ASSERT_TRUE(w.accepts(attach));
  EXPECT_FALSE(w.pause().has_value()) << "another keeper, the same program";
  attach.owner.process = process(71);
  ASSERT_TRUE(w.accepts(attach));
  EXPECT_TRUE(w.pause().has_value());
}

TEST(Unfit, OfWhatIsLostOnItsDeviceNothingIsEntered) {
  TwoLeases w;
  ASSERT_TRUE(w.pause().has_value());
  w.step(AttemptEvent{w.victim, Parked{false, "the driver failed it"}});
  EXPECT_GT(w.state.host.entries, Bytes{});
  Unparked lost{Unparked::How::never, "the driver failed it"};
  lost.nothing_parked = true;
  w.step(AttemptEvent{w.victim, lost});
  EXPECT_EQ(w.states(w.victim), "poisoned");
  EXPECT_EQ(w.state.host.entries, Bytes{});
  EXPECT_EQ(w.at(w.victim).parking->host_bytes, Bytes{});
  EXPECT_TRUE(w.reason(w.victim, ReasonKind::poisoned).flag("nothing_parked"));
}

TEST(MeasuredWhileLocked, WhatItTookBeforeItWasLockedIsEntered) {
  TwoLeases w;
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_TRUE(w.accepts(AttemptEvent{w.victim, MeasuredWhileLocked{plenty}}));
  EXPECT_EQ(w.state.host.entries, 10 * GiB) << "it has not grown";
  w.now = w.now + 20ms;
  w.snapshot({gpu(0, 24 * GiB, {uses(7, 5 * GiB, w.victim), uses(8, 6 * GiB, w.victim)})});
  EXPECT_TRUE(w.accepts(AttemptEvent{w.victim, MeasuredWhileLocked{plenty}}));
  EXPECT_EQ(w.state.host.entries, 11 * GiB);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::pausing_holds_more).bytes("bytes"), 11 * GiB);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::pausing_holds_more).bytes("more"), 1 * GiB);
  EXPECT_EQ(w.room().all, 11 * GiB) << "noted for its way back";
  EXPECT_EQ(w.room().of, (std::map<ProcessRef, Bytes>{{process(7), 9 * GiB}, {process(8), 6 * GiB}}));
}

TEST(MeasuredWhileLocked, WhatDoesNotFitAnyMoreIsNotParked) {
  TwoLeases w;
  w.rules.ledger_limit = 11 * GiB;
  ASSERT_TRUE(w.pause().has_value());
  w.measure(12 * GiB);
  EXPECT_EQ(w.refusal(AttemptEvent{w.victim, MeasuredWhileLocked{plenty}}).code, Code::HostMemory);
  EXPECT_EQ(w.state.host.entries, 10 * GiB) << "as it was";
  w.measure(9 * GiB);
  EXPECT_TRUE(w.accepts(AttemptEvent{w.victim, MeasuredWhileLocked{plenty}}));
  // Another of its processes is in a group that takes less.
  EXPECT_SAYS(w.refusal(AttemptEvent{w.victim, MeasuredWhileLocked{{64 * GiB, 3 * GiB}}}).detail, "3.0 GiB");
  EXPECT_EQ(w.refusal(AttemptEvent{w.victim, MeasuredWhileLocked{{64 * GiB, std::nullopt, true}}}).code,
            Code::PauseUnsafe);
  EXPECT_FALSE(w.accepts(AttemptEvent{w.waiter, MeasuredWhileLocked{plenty}})) << "it is not asked to yield";
}

}  // namespace
}  // namespace sublet::core::testing
