// SPDX-License-Identifier: Apache-2.0
#include "sessions/rules.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace sublet::sessions {
namespace {

using namespace std::chrono_literals;
using Act = Verdict::Act;

constexpr Time start{1'000'000'000'000};

// A session whose time to live of 100 s began at `start`.
Life life(Duration age, Duration activity) { return {start + age, start + 100s, 100s, start, start + activity}; }

TEST(RenewalPart, LiesBetween60And80PercentAndDiffersBetweenSessions) {
  std::set<double> parts;
  for (std::uint64_t number = 1; number <= 1000; ++number) {
    const double part = renewal_part(number);
    EXPECT_GE(part, 0.6);
    EXPECT_LE(part, 0.8);
    parts.insert(part);
  }
  EXPECT_GT(parts.size(), 90u);
}

TEST(Judge, DecidesByTimeAndActivity) {
  const struct {
    const char* name;
    Duration age, activity;
    Act act;
  } cases[] = {
      {"too early to renew", 69s, 50s, Act::wait},
      {"activity since the renewal", 70s, 1s, Act::renew},
      {"no activity yet", 70s, 0s, Act::wait},
      {"activity at last", 90s, 89s, Act::renew},
      {"still no activity", 94s, 0s, Act::wait},
      {"the margin begins", 95s, 0s, Act::expire},
      {"activity within the margin", 96s, 96s, Act::renew},
      {"looked at late, with activity", 300s, 10s, Act::renew},
      {"looked at late, without activity", 300s, 0s, Act::expire},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    EXPECT_EQ(judge(life(one.age, one.activity), 0.7).act, one.act);
  }
}

TEST(Judge, LooksAgainBeforeTheMarginAndNotTooOften) {
  EXPECT_EQ(judge(life(10s, 5s), 0.7).look_at, start + 70s);
  EXPECT_EQ(judge(life(70s, 0s), 0.7).look_at, start + 75s);
  EXPECT_EQ(judge(life(93s, 0s), 0.7).look_at, start + 95s) << "the margin begins";
  int looks = 0;
  for (Time now = start; now < start + 95s; ++looks) now = judge({now, start + 100s, 100s, start, start}, 0.6).look_at;
  EXPECT_LE(looks, 10);
}

TEST(Judge, GoesByTheEndOfTheLeaseAfterAClockGap) {
  Life late = life(1000s, 0s);
  late.expires_at = late.now + 30s;  // the core has extended it
  EXPECT_EQ(judge(late, 0.7).act, Act::wait);
  EXPECT_GT(judge(late, 0.7).look_at, late.now);
}

TEST(Margin, IsATenthOfShortTimesAndFiveSecondsOfLongOnes) {
  EXPECT_EQ(margin_of(1s), 100ms);
  EXPECT_EQ(margin_of(50s), 5s);
  EXPECT_EQ(margin_of(24h), 5s);
}

TEST(EndOf, TellsWhyTheLeaseEnded) {
  using core::EndReason;
  EXPECT_EQ(end_of(EndReason::released, false), End::exited);
  EXPECT_EQ(end_of(EndReason::released, true), End::closed);
  EXPECT_EQ(end_of(EndReason::expired, false), End::expired);
  EXPECT_EQ(end_of(EndReason::revoked, false), End::revoked);
  EXPECT_EQ(end_of(EndReason::over_limit, false), End::over_limit);
  EXPECT_EQ(end_of(EndReason::rejected, false), End::failed);
  EXPECT_EQ(end_of(EndReason::owner_gone, false), End::lost);
}

TEST(CodeOf, NamesTheFailureOfLaterCalls) {
  const struct {
    End end;
    Code code;
  } cases[] = {{End::idle, Code::LeaseExpired},   {End::expired, Code::LeaseExpired},
               {End::closed, Code::LeaseExpired}, {End::revoked, Code::LeaseExpired},
               {End::exited, Code::Disconnected}, {End::failed, Code::Disconnected},
               {End::lost, Code::Disconnected},   {End::over_limit, Code::Overcommit}};
  for (const auto& one : cases) EXPECT_EQ(code_of(one.end), one.code) << to_string(one.end);
}

struct EndTest : ::testing::Test {
  Session session{.number = 7};

  EndTest() {
    session.progress.state = State::active;
    session.request.checkpoint = {"save"};
  }
  Step begin(bool park) {
    begin_end(session, End::expired, park, true, "over", start);
    return session.progress.step;
  }
};

TEST_F(EndTest, ParksFirst) {
  EXPECT_EQ(begin(true), Step::parking);
  EXPECT_EQ(session.progress.state, State::ending);
  session.progress.parking_tried = true;
  EXPECT_EQ(next_step(session, true), Step::checkpoint);
  session.progress.checkpoint_tried = true;
  EXPECT_EQ(next_step(session, true), Step::releasing);
}

TEST_F(EndTest, WithoutACommandNothingIsSaved) {
  session.request.checkpoint.clear();
  EXPECT_EQ(begin(false), Step::releasing);
  begin(true);
  session.progress.parking_tried = true;
  EXPECT_EQ(next_step(session, true), Step::releasing);
}

TEST_F(EndTest, AProgramThatDoesNotRunCannotSave) { EXPECT_EQ(next_step(session, false), Step::releasing); }

TEST_F(EndTest, AFailedCheckpointParksOnceWherePossible) {
  EXPECT_EQ(begin(false), Step::checkpoint);
  session.progress.checkpoint_tried = true;
  session.progress.failures = 1;
  EXPECT_EQ(next_step(session, true), Step::parking);
  session.progress.parking_tried = true;
  EXPECT_EQ(next_step(session, true), Step::releasing);
  session.progress.parking_tried = false;
  session.progress.failures = 2;
  EXPECT_EQ(next_step(session, true), Step::releasing);
}

TEST(SessionRow, KeepsEverything) {
  Session session;
  session.number = 12;
  session.uid = 1000;
  session.user = "ana";
  session.created_at = start;
  session.request.lease = {{"vram_bytes", 1024}, {"tier", "batch"}};
  session.request.tag = "notebook";
  session.request.exclusive = true;
  session.request.ttl = 5min;
  session.request.command = {{"python3", "a b.py"}, {"A=1"}, "/tmp", 027, {{{"resource", 7}}}, "python3 'a b.py'"};
  session.request.checkpoint = {"sh", "-c", "echo x"};
  session.request.checkpoint_every = 10s;
  session.request.checkpoint_timeout = 20s;
  session.progress.state = State::ending;
  session.progress.why = "it is over";
  session.progress.start = 3;
  session.progress.lease = LeaseId{9};
  session.progress.kept_until = start + 1h;
  session.progress.checkpoint = {"/data/1.pt", start, "no", 4, true, start + 1s, 700};
  session.progress.exit_status = 3;
  session.progress.end = End::over_limit;
  session.progress.step = Step::checkpoint;
  session.progress.failures = 1;
  session.progress.on_request = true;
  session.progress.ended_by = 1001;
  const auto again = from_row(to_row(session));
  ASSERT_TRUE(again) << again.error().detail;
  EXPECT_EQ(to_row(*again), to_row(session));
  EXPECT_EQ(again->request.command.umask, 027);
  EXPECT_EQ(again->progress.checkpoint, session.progress.checkpoint);
  EXPECT_EQ(again->progress.step, Step::checkpoint);
  EXPECT_EQ(again->tag(), "notebook");
  EXPECT_EQ(again->id(), "session-12");
}

TEST(SessionRow, ANullFieldOfALeaseIsAMissingOne) {
  Session session;
  session.request.lease = {{"devices", nullptr}, {"tier", nullptr}, {"vram_bytes", 7}};
  const auto again = from_row(to_row(session));
  ASSERT_TRUE(again) << again.error().detail;
  EXPECT_EQ(again->request.lease, (nlohmann::json{{"vram_bytes", 7}}));
  EXPECT_EQ(session.request.number("devices", 1), 1);
  EXPECT_EQ(session.request.text("tier", "standard"), "standard");
  EXPECT_EQ(session.request.text("vram_bytes", "x"), "x") << "another type";
}

TEST(SessionRow, AnUnreadableRowIsAnError) {
  EXPECT_FALSE(from_row({"session", "1", "{}"}));
  EXPECT_FALSE(from_row({"session", "x", to_row(Session{}).data}));
  EXPECT_FALSE(from_row({"session", "1", "no JSON"}));
}

TEST(ParseId, TakesOnlyIds) {
  EXPECT_EQ(parse_id("session-7"), 7u);
  for (const char* wrong : {"7", "session-", "session-x", "lease-7", "session--7", ""}) EXPECT_FALSE(parse_id(wrong));
}

}  // namespace
}  // namespace sublet::sessions
