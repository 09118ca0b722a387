// SPDX-License-Identifier: Apache-2.0
// Programs that the driver cannot park, and what has changed of one by the time it is locked.
#include "core/testing/two_leases.h"

namespace sublet::core::testing {
namespace {

// It was asked of the driver, and came back so.
void refuse(TwoLeases& w, Unfit unfit, std::string why) {
  ASSERT_TRUE(w.pause().has_value());
  w.step(Parked{w.victim, false, std::move(why), {}, true, unfit});
  w.unparked();
  ASSERT_EQ(w.state_of(w.victim), LeaseState::active);
}

double trust(const TwoLeases& w) {
  const MethodRecord* record = w.state.record(anas("train"), PauseMethod::driver);
  return record == nullptr ? 1 : record->reliability();
}

TEST(Unfit, WhatTheDriverCannotParkIsNotAskedAgain) {
  TwoLeases w;
  refuse(w, Unfit::never, "pid 7 uses managed memory");
  EXPECT_LT(trust(w), 1);
  const auto again = w.pause();
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, Code::PauseUnsafe);
  EXPECT_SAYS(again.error().detail, "the driver cannot park it: pid 7 uses managed memory");
  EXPECT_EQ(w.ordered<Park>(), 1);
  w.step(Grant{w.at(w.victim).uid, "train", true});
  EXPECT_FALSE(w.pause().has_value()) << "no word changes what it uses";
  w.pass(1h);
  EXPECT_FALSE(w.pause().has_value());
}

TEST(Unfit, TheWordOfItsOwnerLiftsWhatOnlyHeCanAnswerFor) {
  TwoLeases w;
  refuse(w, Unfit::unvouched, "nobody can see whether process 7 uses managed memory");
  EXPECT_EQ(trust(w), 1) << "nothing was tried";
  const auto again = w.pause();
  ASSERT_FALSE(again.has_value());
  EXPECT_SAYS(again.error().hint, "sublet pause --grant train");
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
    w.state = State::load(w.stored(), {}, w.state.last_id(), w.rules, w.now, {}, w.state.grants());
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
  ASSERT_TRUE(w.step(attach).outcome.has_value());
  EXPECT_FALSE(w.pause().has_value()) << "another keeper, the same program";
  attach.owner.process = process(71);
  ASSERT_TRUE(w.step(attach).outcome.has_value());
  EXPECT_TRUE(w.pause().has_value());
}

TEST(Unfit, YieldingByItselfIsLeft) {
  TwoLeases w;
  refuse(w, Unfit::never, "pid 7 uses managed memory");
  Cooperation how;
  how.process = process(7);
  ASSERT_TRUE(w.step(Cooperate{w.victim, 0, how}).outcome.has_value());
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_EQ(w.at(w.victim).parking->method, PauseMethod::cooperative);
}

TEST(Unfit, OfWhatIsLostOnItsDeviceNothingIsEntered) {
  TwoLeases w;
  ASSERT_TRUE(w.pause().has_value());
  w.step(Parked{w.victim, false, "the driver failed it"});
  EXPECT_GT(w.state.ledger_entries(), Bytes{});
  Unparked lost{w.victim, Unparked::How::never, "the driver failed it"};
  lost.nothing_parked = true;
  w.step(lost);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::poisoned);
  EXPECT_EQ(w.state.ledger_entries(), Bytes{});
  EXPECT_EQ(w.at(w.victim).parking->host_bytes, Bytes{});
  EXPECT_TRUE(w.reason(w.victim, ReasonKind::poisoned).flag("nothing_parked"));
}

TEST(MeasuredWhileLocked, WhatItTookBeforeItWasLockedIsEntered) {
  TwoLeases w;
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_EQ(w.state.ledger_entries(), 10 * GiB);
  EXPECT_TRUE(w.step(MeasuredWhileLocked{w.victim, plenty}).outcome.has_value());
  EXPECT_EQ(w.state.ledger_entries(), 10 * GiB) << "it has not grown";
  w.measure(12 * GiB);
  EXPECT_TRUE(w.step(MeasuredWhileLocked{w.victim, plenty}).outcome.has_value());
  EXPECT_EQ(w.state.ledger_entries(), 12 * GiB);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::pausing_holds_more).bytes("bytes"), 12 * GiB);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::pausing_holds_more).bytes("more"), 2 * GiB);
}

TEST(MeasuredWhileLocked, WhatEachHoldsIsNotedForItsWayBack) {
  TwoLeases w;
  ASSERT_TRUE(w.pause().has_value());
  w.now = w.now + 20ms;
  w.snapshot({gpu(0, 24 * GiB, {uses(7, 5 * GiB, w.victim), uses(8, 6 * GiB, w.victim)})});
  EXPECT_TRUE(w.step(MeasuredWhileLocked{w.victim, plenty}).outcome.has_value());
  const auto needed = w.state.to_restore(w.at(w.victim), w.at(w.victim).devices.front());
  EXPECT_EQ(needed.all, 11 * GiB);
  EXPECT_EQ(needed.of, (std::map<ProcessRef, Bytes>{{process(7), 9 * GiB}, {process(8), 6 * GiB}}));
}

TEST(MeasuredWhileLocked, WhatDoesNotFitAnyMoreIsNotParked) {
  TwoLeases w;
  w.rules.ledger_limit = 11 * GiB;
  ASSERT_TRUE(w.pause().has_value());
  w.measure(12 * GiB);
  const auto limited = w.step(MeasuredWhileLocked{w.victim, plenty}).outcome;
  ASSERT_FALSE(limited.has_value());
  EXPECT_EQ(limited.error().code, Code::HostMemory);
  EXPECT_SAYS(limited.error().detail, "holds 12.0 GiB");
  EXPECT_EQ(w.state.ledger_entries(), 10 * GiB) << "as it was";
  w.measure(9 * GiB);
  EXPECT_TRUE(w.step(MeasuredWhileLocked{w.victim, plenty}).outcome.has_value());
  // Another of its processes is in a group that takes less.
  const auto tight = w.step(MeasuredWhileLocked{w.victim, {64 * GiB, 3 * GiB}}).outcome;
  ASSERT_FALSE(tight.has_value());
  EXPECT_SAYS(tight.error().detail, "the control group that is charged takes 3.0 GiB more");
  const auto swaps = w.step(MeasuredWhileLocked{w.victim, {64 * GiB, std::nullopt, true}}).outcome;
  ASSERT_FALSE(swaps.has_value());
  EXPECT_EQ(swaps.error().code, Code::PauseUnsafe);
  EXPECT_FALSE(w.step(MeasuredWhileLocked{w.waiter, plenty}).outcome.has_value()) << "it is not asked to yield";
}

}  // namespace
}  // namespace sublet::core::testing
