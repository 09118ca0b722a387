// SPDX-License-Identifier: Apache-2.0
// Leases, renewals and starts of sessions.
#include "sessions/sessions_test.h"

namespace sublet::sessions {
namespace {

TEST_F(SessionsTest, IsRenewedOnlyIfThereWasActivity) {
  const std::uint64_t number = open();
  ASSERT_EQ(state(number), State::active);
  const Time end = *lease(number).expires_at;
  activity_ = {Activity::State::busy, clock_->now() + 1s};
  pass(55s);
  EXPECT_EQ(*lease(number).expires_at, end) << "it is too early";
  pass(30s);
  EXPECT_GT(*lease(number).expires_at, end);
  activity_ = {Activity::State::idle, clock_->now() - 60s};
  pass(120s);
  EXPECT_EQ(state(number), State::closed);
  EXPECT_EQ(at(number).progress.end, End::expired);
}

TEST_F(SessionsTest, UnknownActivityCountsAsActivity) {
  activity_.state = Activity::State::unknown;
  const std::uint64_t number = open();
  pass(500s);
  EXPECT_EQ(state(number), State::active);
}

TEST_F(SessionsTest, ATouchAtTheLastMomentRenews) {
  const std::uint64_t number = open();
  pass(90s);
  ASSERT_TRUE(sessions_->touch(at(number)));
  settle();
  pass(50s);
  EXPECT_EQ(state(number), State::active);
}

TEST_F(SessionsTest, EndsBeforeItsLeaseWould) {
  const std::uint64_t number = open();
  pass(96s, 1s);
  EXPECT_NE(state(number), State::active);
  EXPECT_NE(at(number).progress.why.find("without activity"), std::string::npos)
      << "the session ended it, not the core";
  EXPECT_EQ(lease(number).end_reason, core::EndReason::expired) << "the same word";
}

TEST_F(SessionsTest, NobodyExpiresInAClockGap) {
  const std::uint64_t number = open();
  advance(1h);  // many times to live
  EXPECT_EQ(state(number), State::active);
  ASSERT_TRUE(sessions_->touch(at(number)));
  pass(20s);
  EXPECT_EQ(state(number), State::active);
  restart(1h);
  EXPECT_EQ(state(number), State::active);
  pass(200s);
  EXPECT_EQ(state(number), State::closed) << "time counts again";
}

TEST_F(SessionsTest, ItsTimeStandsStillWhileItsProgramIsParked) {
  const std::uint64_t number = open();
  pass(40s);
  cooperates(number);
  decide(core::Pause{at(number).progress.lease, 0, {}, core::HostMemory{64 * GiB, {}}});
  const auto left = lease(number).time_left(clock_->now());
  parks(number);
  pass(400s);
  decide(core::Resume{at(number).progress.lease});
  pass(6s, 1s);
  decide(core::AttemptEvent{at(number).progress.lease, core::Unparked{core::Unparked::How::runs}});
  EXPECT_EQ(lease(number).time_left(clock_->now()), left);
  pass(*left - 20s);
  EXPECT_EQ(state(number), State::active);
  pass(30s, 1s);
  EXPECT_EQ(at(number).progress.end, End::expired) << "a return is no activity";
}

TEST_F(SessionsTest, AnEndWithoutAProgramClosesIt) {
  const std::uint64_t number = open();
  ASSERT_TRUE(close(number));
  pass(5s);
  EXPECT_EQ(state(number), State::closed);
  EXPECT_EQ(at(number).progress.end, End::closed);
  EXPECT_EQ(sessions_->touch(at(number)).error().code, Code::LeaseExpired);
  EXPECT_EQ(sessions_->checkpoint(at(number)).error().code, Code::BadRequest) << "it has no command";
  EXPECT_TRUE(close(number)) << "again";
}

TEST_F(SessionsTest, AnAdminsEndIsARevocation) {
  const std::uint64_t number = open();
  ASSERT_TRUE(close(number, true, 0));
  pass(5s);
  EXPECT_EQ(at(number).progress.end, End::revoked);
}

TEST_F(SessionsTest, TheIdleRuleEndsIt) {
  const std::uint64_t number = open();
  EXPECT_FALSE(sessions_->end_idle(LeaseId{99}, "idle"));
  EXPECT_TRUE(sessions_->end_idle(at(number).progress.lease, "it did nothing for 1 h"));
  settle();
  pass(5s);
  EXPECT_EQ(at(number).progress.end, End::idle);
  EXPECT_EQ(at(number).progress.why, "it did nothing for 1 h");
}

TEST_F(SessionsTest, WaitsForMemoryAndClaimsItsOffer) {
  const std::uint64_t first = open(1000s, 20 * GiB), second = open(1000s, 20 * GiB);
  engine_->access().not_held(lease(second).id);
  ASSERT_EQ(state(second), State::queued);
  ASSERT_TRUE(close(first));
  pass(5s);
  EXPECT_EQ(state(second), State::active);
}

TEST_F(SessionsTest, AWaitingSessionIsClosedAtOnce) {
  const std::uint64_t first = open(1000s, 20 * GiB), second = open(1000s, 20 * GiB);
  ASSERT_TRUE(close(second));
  pass(5s);
  EXPECT_EQ(state(second), State::closed);
  EXPECT_EQ(state(first), State::active);
}

TEST_F(SessionsTest, HasALimitOfSessionsThatAreNotClosed) {
  options_.most_sessions = 2;
  restart();
  const std::uint64_t first = open();
  open();
  EXPECT_EQ(sessions_->next_number(1000, "ana").error().code, Code::Quota);
  EXPECT_TRUE(sessions_->next_number(1001, "bea"));
  ASSERT_TRUE(close(first));
  pass(5s);
  EXPECT_TRUE(sessions_->next_number(1000, "ana"));
}

TEST_F(SessionsTest, ContinuousActivityEndsWhileOthersWait) {
  options_.max_continuous = 60s;
  restart();
  activity_ = {Activity::State::busy, clock_->now()};
  const std::uint64_t number = open(1000s, 20 * GiB);
  const auto busy = [&](Duration time) {
    for (Duration left = time; left > Duration{}; left -= 2s) {
      activity_.last = clock_->now();
      advance(2s);
    }
  };
  busy(120s);
  EXPECT_EQ(state(number), State::active) << "nobody waits";
  const std::uint64_t waiter = open(1000s, 20 * GiB);
  busy(20s);
  EXPECT_EQ(at(number).progress.end, End::expired) << "it has no program that can be paused";
  EXPECT_NE(at(number).progress.why.find("preempted for lease-2"), std::string::npos) << at(number).progress.why;
  EXPECT_NE(state(waiter), State::closed);
}

TEST_F(SessionsTest, ABreakEndsContinuousActivity) {
  options_.max_continuous = 60s;
  restart();
  const std::uint64_t number = open(1000s, 20 * GiB);
  activity_ = {Activity::State::idle, clock_->now()};
  pass(70s);
  open(1000s, 20 * GiB);
  activity_ = {Activity::State::busy, clock_->now()};
  pass(20s);
  EXPECT_EQ(state(number), State::active);
}

// --- commands ---

TEST_F(SessionsTest, AStartIsOrderedOnceItIsStored) {
  const std::uint64_t number = sessions_->add(fresh(100s, true)).number;
  EXPECT_TRUE(keepers_.orders.empty());
  settle();
  ASSERT_EQ(keepers_.orders.size(), 1u);
  const auto document = keepers_.document(0);
  EXPECT_EQ(document.at("session"), (nlohmann::json{{"id", "session-1"}, {"start", 1}}));
  EXPECT_EQ(document.at("request").at("tag"), "session-1");
  EXPECT_EQ(document.at("request").at("ttl_seconds"), 100);
  EXPECT_FALSE(document.contains("program"));
  pass(5s);
  EXPECT_EQ(keepers_.orders.size(), 1u);
  EXPECT_TRUE(sessions_->may_submit(1000, number, 1));
  EXPECT_EQ(sessions_->may_submit(1000, number, 2).error().code, Code::Stale);
  EXPECT_EQ(sessions_->may_submit(1001, number, 1).error().code, Code::NotFound);
  restart();
  ASSERT_EQ(keepers_.orders.size(), 2u) << "nobody knows whether the first keeper lives";
  EXPECT_EQ(sessions_->may_submit(1000, number, 1).error().code, Code::Stale);
  EXPECT_TRUE(sessions_->may_submit(1000, number, 2));
}

TEST_F(SessionsTest, AStartThatFailsIsTold) {
  const std::uint64_t number = sessions_->add(fresh(100s, true)).number;
  settle();
  ASSERT_TRUE(sessions_->report(at(number), {.start = 1, .failed = "'train' was not found", .exit_status = 127}));
  settle();
  EXPECT_EQ(state(number), State::closed);
  EXPECT_EQ(at(number).progress.end, End::failed);
  EXPECT_EQ(sessions_->touch(at(number)).error().code, Code::Disconnected);
  ASSERT_TRUE(sessions_->resume(at(number)));
  settle();
  EXPECT_EQ(keepers_.orders.size(), 2u);
  keepers_.answers.at(1)(unavailable("the actor is away"));
  EXPECT_EQ(state(number), State::closed);
  EXPECT_NE(at(number).why().find("the actor is away"), std::string::npos);
}

TEST_F(SessionsTest, AStartIsClosedBeforeItHasALease) {
  const std::uint64_t number = sessions_->add(fresh(100s, true)).number;
  settle();
  ASSERT_TRUE(close(number));
  EXPECT_EQ(state(number), State::closed);
  EXPECT_EQ(sessions_->may_submit(1000, number, 1).error().code, Code::Stale);
}

// --- the limit of continuous activity ---

class CapTest : public SessionsTest {
 protected:
  CapTest() {
    options_.max_continuous = 60s;
    activity_.state = Activity::State::busy;
    restart();
  }
};

TEST_F(CapTest, ARefusalForNowEndsNothing) {
  rules_.ledger_limit = MiB;  // nothing can be parked
  restart();
  const std::uint64_t number = open(1000s, 20 * GiB);
  cooperates(number);
  open(1000s, 20 * GiB);
  pass(200s);
  EXPECT_EQ(state(number), State::active);
}

TEST_F(CapTest, AProgramWithAPauseMethodIsPaused) {
  sizes_ = {GiB};
  rules_.automatic = false;  // neither tiers nor time slices pause it
  restart();
  const std::uint64_t number = open(1000s, 768 * MiB);
  cooperates(number);
  const LeaseId below = plain_lease(768 * MiB, core::Tier::batch);
  pass(100s);
  EXPECT_EQ(state(number), State::active) << "it would preempt a waiter of a lower tier at once";
  decide(core::Release{.lease = below});
  plain_lease(768 * MiB);
  pass(100s);
  EXPECT_EQ(state(number), State::paused);
  EXPECT_NE(at(number).progress.why.find("and lease-3 (plain-2, ana) waits"), std::string::npos)
      << at(number).progress.why;
}

TEST_F(CapTest, AnotherSessionOfALowerTierEndsNone) {
  const std::uint64_t number = open(1000s, 20 * GiB);  // without a pause method
  plain_lease(20 * GiB, core::Tier::spot);
  pass(200s);
  EXPECT_EQ(state(number), State::active);
}

TEST_F(CapTest, AWaiterThatItCannotHelpIsNoReason) {
  plain_lease(16 * GiB);
  const std::uint64_t number = open(1000s, 4 * GiB);
  plain_lease(20 * GiB);  // needs the memory of the first too
  pass(200s);
  EXPECT_EQ(state(number), State::active);
}

TEST_F(CapTest, TwoSessionsTogetherMakeWayForOne) {
  const std::uint64_t one = open(1000s, 10 * GiB), two = open(1000s, 10 * GiB);
  pass(70s);
  plain_lease(24 * GiB);
  pass(20s);
  EXPECT_EQ(at(one).progress.end, End::expired);
  EXPECT_EQ(at(two).progress.end, End::expired);
}

TEST_F(CapTest, ALeaseThatOnlyWantsToGrowIsNoWaiter) {
  const std::uint64_t number = open(1000s, 20 * GiB), other = open(1000s, GiB);
  decide(core::Resize{at(other).progress.lease, 0, 10 * GiB, true});
  ASSERT_TRUE(lease(other).resize);
  pass(200s);
  EXPECT_EQ(state(number), State::active);
}

// --- several devices ---

TEST_F(SessionsTest, SeveralDevicesAreTakenAllOrNone) {
  sizes_ = {24 * GiB, 24 * GiB};
  restart();
  const std::uint64_t first = open(1000s, 20 * GiB);
  Session both = fresh(1000s);
  both.request.lease["devices"] = 2;
  const std::uint64_t number = both.number;
  submit(both, 20 * GiB);
  EXPECT_EQ(state(number), State::queued);
  EXPECT_TRUE(lease(number).devices.empty());
  ASSERT_TRUE(close(first));
  pass(5s);
  EXPECT_EQ(state(number), State::active);
  EXPECT_EQ(lease(number).devices.size(), 2u);
}

TEST_F(SessionsTest, WholeDevicesHaveTheSizeOfTheirDevice) {
  const struct {
    const char* what;
    std::vector<Bytes> sizes;
    nlohmann::json request;
    Bytes whole;  // 0: refused
  } cases[] = {
      {"one of one", {24 * GiB}, {}, 24 * GiB},
      {"two alike", {24 * GiB, 24 * GiB}, {{"devices", 2}}, 24 * GiB},
      {"the largest of several", {16 * GiB, 24 * GiB}, {}, 24 * GiB},
      {"the named one", {16 * GiB, 24 * GiB}, {{"device", "GPU-1"}}, 16 * GiB},
      {"one of the named ones", {24 * GiB, 16 * GiB, 16 * GiB}, {{"device", "GPU-2,GPU-3"}}, 16 * GiB},
      {"all of the named ones", {24 * GiB, 16 * GiB, 16 * GiB}, {{"device", "GPU-2,GPU-3"}, {"devices", 2}}, 16 * GiB},
      {"any", {16 * GiB, 24 * GiB}, {{"device", "any"}}, 24 * GiB},
      {"two that differ", {16 * GiB, 24 * GiB}, {{"devices", 2}}, {}},
      {"the two largest are alike", {24 * GiB, 16 * GiB, 24 * GiB}, {{"devices", 2}}, 24 * GiB},
      {"a type that was not checked", {24 * GiB}, {{"devices", nullptr}}, 24 * GiB},
  };
  for (const auto& one : cases) {
    sizes_ = one.sizes;
    restart();
    Request request;
    if (one.request.is_object()) request.lease = one.request;
    const auto whole = sessions_->whole_devices(request);
    EXPECT_EQ(whole ? *whole : Bytes{}, one.whole) << one.what;
    if (!whole) {
      EXPECT_EQ(whole.error().code, Code::BadRequest) << one.what;
    }
  }
}

}  // namespace
}  // namespace sublet::sessions
