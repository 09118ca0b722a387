// SPDX-License-Identifier: Apache-2.0
// A card that is gone, and what was parked from it: nobody is left parked whom nobody would bring back.
#include "core/testing/two_leases.h"
#include "state/blocked.h"

namespace sublet::core::testing {
namespace {

// A program that has parked 9 of its 10 GiB on the second of two cards, which is lost.
struct Lost : World {
  LeaseId lease;
  // `ours`: started by Sublet, so that it is Sublet's to end.
  explicit Lost(bool by_itself = false, bool ours = true) {
    there();
    Lease asked = wish(10 * GiB);
    asked.owner.kind = OwnerKind::connection;
    asked.wanted_devices = {uuid_of(1)};
    lease = submit(asked, true);
    step(Attach{lease, 0, ours ? kept_process(7) : Owner{OwnerKind::process, process(7), {}, ""}, true, {}});
    there(9 * GiB);
    step(Grant{at(lease).uid, at(lease).consumer});
    Cooperation how;
    how.process = process(7);
    if (by_itself) step(Cooperate{lease, 0, how});
  }
  void there(Bytes used = {}) {
    now = now + 20ms;
    std::vector<ProcessUse> processes;
    if (used > Bytes{}) processes.push_back(uses(7, used, lease));
    snapshot({gpu(0, 8 * GiB), gpu(1, 24 * GiB, std::move(processes))});
  }
  void pause() { ASSERT_TRUE(step(Pause{lease, 0, {}, plenty}).outcome.has_value()); }
  void settle() {
    pause();
    step(AttemptEvent{lease, Parked{true, {}, 9 * GiB}});
    there(), there();
    ASSERT_EQ(state_of(lease), LeaseState::paused);
    actions.clear();
  }
  void gone_for(Duration d) {
    for (const Time until = now + d; now < until; pass(5s)) snapshot({gpu(0, 8 * GiB)});
    snapshot({gpu(0, 8 * GiB)});
  }
};

TEST(LostCard, WhoIsParkedWaitsForItAndIsToldSo) {
  Lost w;
  w.settle();
  w.gone_for(1min);
  ASSERT_EQ(w.states(w.lease), "paused");
  EXPECT_EQ(w.state.host.entries, 9 * GiB);
  EXPECT_EQ(w.signals(w.lease, false), 0);
  EXPECT_EQ(w.reason(w.lease, ReasonKind::blocked_by_missing_device).text("problem"), "ResumeBlocked");
  EXPECT_EQ(w.times_told(w.lease, ReasonKind::blocked_by_missing_device), 1);
  const auto blocked = what_blocks(w.state, w.rules, w.at(w.lease), w.now);
  ASSERT_TRUE(blocked);
  EXPECT_EQ(blocked->code, Code::ResumeBlocked);
  EXPECT_TRUE(blocked->args.flag("may_resume"));
  EXPECT_EQ(blocked->args.duration("forget_after"), w.rules.forget_after);
  EXPECT_SAYS(explain::what_would_help(w.state, w.rules, w.at(w.lease), w.now).front(), "the device's return");

  ASSERT_TRUE(w.accepts(Resume{w.lease}));
  EXPECT_SAYS(w.reason(w.lease, ReasonKind::resume_queued).text("unknown"), "gpu1 (GPU-1)");
  w.gone_for(30s);
  EXPECT_TRUE(what_blocks(w.state, w.rules, w.at(w.lease), w.now)->args.flag("will_resume"));
  EXPECT_EQ(w.ordered<Unpark>(), 0);
  w.there();
  EXPECT_EQ(w.states(w.lease), "resuming");
  EXPECT_FALSE(what_blocks(w.state, w.rules, w.at(w.lease), w.now));
  w.step(AttemptEvent{w.lease, Unparked{}});
  EXPECT_EQ(w.states(w.lease), "active");
}

TEST(LostCard, WhomOnlyItCouldBringBackEndsWithItsProgramWhenItIsForgotten) {
  Lost w;
  w.settle();
  for (int times = 1; times <= 2; ++times) {
    w.there();
    w.gone_for(1min);
    EXPECT_EQ(w.times_told(w.lease, ReasonKind::blocked_by_missing_device), times) << "told again when lost again";
  }
  w.restart();
  w.gone_for(1min);
  EXPECT_EQ(w.states(w.lease), "paused") << "a later daemon waits for it too";
  EXPECT_GE(w.times_told(w.lease, ReasonKind::blocked_by_missing_device), 2);
  w.gone_for(w.rules.forget_after);
  EXPECT_EQ(w.state.devices.by_uuid.size(), 1U);
  EXPECT_EQ(w.at(w.lease).end_reason, EndReason::failed);
  EXPECT_TRUE(w.reason(w.lease, ReasonKind::device_gone).flag("parked"));
  EXPECT_EQ(w.reason(w.lease, ReasonKind::device_gone).duration("signal_grace"), w.rules.grace);
  EXPECT_EQ(w.signals(w.lease, false), 1);
  EXPECT_EQ(w.state.host.entries, Bytes{});
  w.pass(w.rules.grace);
  EXPECT_EQ(w.signals(w.lease, true), 1);
  w.step(ProgramEnded{w.lease, 137, true});
  EXPECT_TRUE(w.gone(w.lease));
}

// Out of reach it was never told, and is once whoever would tell it is there again.
TEST(LostCard, WhoeverYieldedByItselfIsToldToGoOnFirst) {
  for (const std::string answer : {"runs", "late", "unreachable"}) {
    SCOPED_TRACE(answer);
    Lost w(/*by_itself=*/true);
    w.settle();
    w.gone_for(w.rules.forget_after - 10s);
    EXPECT_EQ(w.ordered<Unpark>(), 0);
    w.gone_for(10s);
    EXPECT_EQ(w.ordered<Unpark>(), 1);
    EXPECT_EQ(w.reason(w.lease, ReasonKind::resuming_without_device).text("device"), "gpu1");
    w.gone_for(10s);
    ASSERT_EQ(w.states(w.lease), "resuming") << "it has its time to answer";
    if (answer == "runs") {
      w.step(AttemptEvent{w.lease, Unparked{}});
      EXPECT_EQ(w.states(w.lease), "active");
      w.gone_for(5s);
      EXPECT_TRUE(w.gone(w.lease) || w.at(w.lease).end_reason == EndReason::failed);
      EXPECT_EQ(w.signals(w.lease, false), 0) << "it runs, and sees for itself";
      continue;
    }
    w.step(
        AttemptEvent{w.lease, Unparked{Unparked::How::not_yet, "it does not answer", plenty, *parse_obstacle(answer)}});
    const bool late = answer == "late";
    w.gone_for(late ? 5s : 1min);
    EXPECT_EQ(w.at(w.lease).end_reason, late ? EndReason::failed : EndReason::none);
    EXPECT_EQ(w.states(w.lease), late ? "ended" : "resuming");
    EXPECT_EQ(w.signals(w.lease, false), late ? 1 : 0);
    EXPECT_GE(w.ordered<Unpark>(), late ? 1 : 2);
  }
}

// One of two cards is left, and other leases have taken the memory that the lease had there.
TEST(LostCard, GoesOnBesideOnlyWhereItsRoomIsFree) {
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  Lease asked = wish(10 * GiB);
  asked.device_count = 2;
  const LeaseId id = w.submit(asked);
  Cooperation how;
  how.way = CooperationWay::webhook;
  w.step(Cooperate{id, 0, how});
  w.step(Pause{id, 0, {}, plenty});
  w.step(AttemptEvent{id, Parked{true, {}, 9 * GiB}});
  for (int i = 0; i < 2; ++i) w.now = w.now + 20ms, w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  ASSERT_EQ(w.states(id), "paused");
  const LeaseId other = w.submit(20 * GiB);
  ASSERT_EQ(w.device_of(other), uuid_of(0));
  const auto pass = [&w](Duration d) {
    for (const Time until = w.now + d; w.now < until; w.pass(5s)) w.snapshot({gpu(0, 24 * GiB)});
  };
  pass(w.rules.forget_after + 1min);
  EXPECT_EQ(w.states(id), "paused");
  w.step(Release{.lease = other, .force = true});
  pass(5s);
  EXPECT_EQ(w.states(id), "resuming");
  EXPECT_EQ(w.free(0), 14 * GiB) << "it has its room there";
}

TEST(LostCard, WhatWasBeingParkedIsUndoneAndTriedUntilItIsBack) {
  Lost w;
  w.pause();
  w.gone_for(1min);
  EXPECT_EQ(w.states(w.lease), "pausing");
  w.step(AttemptEvent{w.lease, Parked{true, {}, 9 * GiB}});
  w.gone_for(w.rules.verify_timeout);
  EXPECT_EQ(w.states(w.lease), "resuming") << "nobody can measure that it has yielded";
  for (int i = 0; i < 5; ++i) {
    w.step(AttemptEvent{w.lease, Unparked{Unparked::How::not_yet, "the card does not answer"}});
    w.gone_for(30s);
  }
  EXPECT_EQ(w.states(w.lease), "resuming");
  w.there();
  w.step(AttemptEvent{w.lease, Unparked{}});
  EXPECT_EQ(w.states(w.lease), "active");
}

TEST(LostCard, WhoIsStoppedMeanwhileIsEndedAsItIs) {
  for (const bool at_once : {true, false}) {  // else before it is known that the card is lost
    Lost w;
    w.settle();
    if (at_once) w.gone_for(1min);
    else w.snapshot({gpu(0, 8 * GiB)});
    ASSERT_TRUE(w.accepts(Release{.lease = w.lease, .stop = true}));
    EXPECT_EQ(w.signals(w.lease, false), at_once ? 1 : 0) << "it may never run again";
    w.gone_for(20s);
    EXPECT_EQ(w.signals(w.lease, false), 1);
    w.step(ProgramEnded{w.lease, 143, true});
    EXPECT_EQ(w.times_told(w.lease, ReasonKind::program_stopped), 1);
  }
}

// Nobody here can end its program: its lease is all there is to take, and only whoever insists takes it.
TEST(LostCard, WhoWasNotStartedHereKeepsItsLeaseUntilSomebodyInsists) {
  for (const bool revoke : {true, false}) {
    Lost w(/*by_itself=*/false, /*ours=*/false);
    w.settle();
    w.gone_for(1min);
    ASSERT_TRUE(w.accepts(Release{.lease = w.lease, .stop = true}));
    w.gone_for(1min);
    EXPECT_EQ(w.states(w.lease), "paused");
    EXPECT_FALSE(w.reason(w.lease, ReasonKind::stop_deferred).flag("signalled"));
    const Release insists{.lease = w.lease, .force = !revoke, .stop = !revoke, .revoke = revoke};
    ASSERT_TRUE(w.accepts(insists));
    const ReasonKind kind = revoke ? ReasonKind::revoked_by_admin : ReasonKind::released_by_owner;
    EXPECT_TRUE(w.reason(w.lease, kind).flag("stays_parked"));
    EXPECT_EQ(w.at(w.lease).end_reason, revoke ? EndReason::revoked : EndReason::released);
    EXPECT_EQ(w.state.host.entries, Bytes{});
    EXPECT_EQ(w.signals(w.lease, false), 0);
  }
}

TEST(LostCard, WhoWasNotStartedHereAndYieldedByItselfIsToldToGoOnBeforeItsLeaseEnds) {
  for (const bool answers : {true, false}) {
    Lost w(/*by_itself=*/true, /*ours=*/false);
    w.settle();
    w.gone_for(1min);
    const Release ends{.lease = w.lease, .stop = answers, .revoke = !answers};
    ASSERT_TRUE(w.accepts(ends));
    w.gone_for(5s);
    EXPECT_EQ(w.times_told(w.lease, ReasonKind::resuming_to_end), 1);
    ASSERT_EQ(w.ordered<Unpark>(), 1);
    if (answers) {
      w.step(AttemptEvent{w.lease, Unparked{}});
      EXPECT_EQ(w.times_told(w.lease, ReasonKind::ended_on_resume), 1);
      EXPECT_EQ(w.signals(w.lease, false), 0);
      continue;
    }
    w.step(AttemptEvent{w.lease, Unparked{Unparked::How::not_yet, "it does not answer", plenty, ObstacleCode::late}});
    w.gone_for(1min);
    EXPECT_EQ(w.states(w.lease), "resuming");
    ASSERT_TRUE(w.accepts(ends));
    EXPECT_EQ(w.at(w.lease).end_reason, EndReason::revoked);
  }
}

}  // namespace
}  // namespace sublet::core::testing
