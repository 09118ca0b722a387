// SPDX-License-Identifier: Apache-2.0
#include "guard/supervise.h"

#include <gtest/gtest.h>

namespace sublet::guard {
namespace {

using namespace std::chrono_literals;
using core::EndReason;
using core::LeaseState;

constexpr Time start{1'000'000'000'000};

Program running(Restart policy) {
  Program program;
  program.tag = "serve";
  program.manifest.restart = policy;
  begin_start(program, start);
  program.progress.lease = LeaseId{7};
  follow(program, LeaseState::active, start);
  return program;
}

TEST(Supervise, ThePolicyDecidesAboutTheNextStart) {
  struct Case {
    Ended end;
    Phase never, on_failure, always;
  };
  const Case cases[] = {
      {{EndReason::released, 0}, Phase::exited, Phase::exited, Phase::backoff},
      {{EndReason::released, 7}, Phase::failed, Phase::backoff, Phase::backoff},
      {{EndReason::over_limit, 143}, Phase::failed, Phase::backoff, Phase::backoff},
      {{EndReason::owner_gone, 139}, Phase::failed, Phase::backoff, Phase::backoff},
      {{EndReason::owner_gone, {}}, Phase::failed, Phase::backoff, Phase::backoff},
      {{EndReason::failed, 127}, Phase::failed, Phase::backoff, Phase::backoff},
      {{EndReason::lost, {}}, Phase::failed, Phase::backoff, Phase::backoff},
      {{EndReason::unclaimed, {}}, Phase::failed, Phase::backoff, Phase::backoff},
      {{EndReason::rejected, {}}, Phase::failed, Phase::failed, Phase::failed},
      {{EndReason::released, 0, true}, Phase::stopped, Phase::stopped, Phase::stopped},
      {{EndReason::revoked, 143, true}, Phase::stopped, Phase::stopped, Phase::stopped},
  };
  for (const Case& one : cases) {
    for (const auto& [policy, phase] :
         {std::pair(Restart::never, one.never), {Restart::on_failure, one.on_failure}, {Restart::always, one.always}}) {
      Program program = running(policy);
      end_start(program, one.end, start + 1min);
      EXPECT_EQ(to_string(program.progress.phase), to_string(phase))
          << to_string(policy) << " after " << core::to_string(one.end.reason) << one.end.status.value_or(-1);
      EXPECT_EQ(program.progress.exit_status, one.end.status);
    }
  }
}

TEST(Supervise, RestartsBackOffAndEndAfterFiveInTenMinutes) {
  Program program = running(Restart::always);
  Time now = start;
  for (const Duration wait : {1s, 2s, 4s, 8s, 16s}) {
    end_start(program, {EndReason::released, 1}, now);
    ASSERT_EQ(program.progress.phase, Phase::backoff);
    EXPECT_EQ(program.progress.next_start, now + wait);
    restart(program, now = program.progress.next_start);
  }
  end_start(program, {EndReason::released, 1, false, "released: its program exited with status 1"}, now);
  EXPECT_EQ(program.progress.phase, Phase::failed);
  EXPECT_EQ(program.progress.why,
            "released: its program exited with status 1; it was restarted 5 times in ten minutes, so it is not started "
            "again");
  EXPECT_EQ(program.progress.restarts, 5U);
}

TEST(Supervise, RestartsOfLongAgoDoNotCount) {
  Program program = running(Restart::always);
  Time now = start;
  for (int i = 0; i < 20; ++i) {
    end_start(program, {EndReason::released, 1}, now);
    ASSERT_EQ(program.progress.phase, Phase::backoff) << i;
    now = now + 3min;
    restart(program, now);
  }
}

TEST(Supervise, RequestsOutweighThePolicy) {
  Program stopped = running(Restart::always);
  stopped.progress.wish = Wish::stop;
  end_start(stopped, {EndReason::released, 0}, start);
  EXPECT_EQ(stopped.progress.phase, Phase::stopped);

  Program again = running(Restart::never);
  again.progress.wish = Wish::restart;
  const auto before = again.progress.start;
  end_start(again, {EndReason::released, 143, true}, start);
  EXPECT_EQ(again.progress.phase, Phase::starting);
  EXPECT_EQ(again.progress.start, before + 1);
  EXPECT_EQ(again.progress.wish, Wish::none);
  EXPECT_EQ(again.progress.restarts, 0U) << "a restart on request is none of the policy";

  Program removed = running(Restart::always);
  removed.progress.wish = Wish::remove;
  end_start(removed, {EndReason::owner_gone, 9}, start);
  EXPECT_EQ(removed.progress.phase, Phase::stopped);
}

TEST(Program, ComesBackFromItsRowAsItWas) {
  Program program = running(Restart::on_failure);
  program.uid = 1000;
  program.user = "ana";
  program.number = 3;
  program.created_at = Time{5};
  program.manifest.arguments = {"python3", "a b", "\xc3\xa9"};
  program.manifest.environment = {"KEY=a=b"};
  program.manifest.directory = "/home/ana";
  program.manifest.umask = 077;
  program.manifest.request = {{"vram_bytes", 5}, {"memory_bytes", 7}};
  program.manifest.sized_by_ceiling = true;
  program.progress.recent = {Time{1}, Time{2}};
  program.progress.exit_status = 3;
  program.progress.warning = "cannot write";
  const auto row = to_row(program);
  const auto back = from_row(row);
  ASSERT_TRUE(back) << back.error().detail;
  EXPECT_EQ(to_row(*back), row);
  EXPECT_EQ(back->manifest.ceiling(), Bytes{7});
  EXPECT_FALSE(from_row({"program", "1000/serve", "{}"}));
}

TEST(Program, KeepsItsWishInItsRow) {
  Program program = running(Restart::never);
  for (const Wish wish : {Wish::none, Wish::stop, Wish::restart, Wish::remove}) {
    program.progress.wish = wish;
    EXPECT_EQ(from_row(to_row(program))->progress.wish, wish);
  }
}

TEST(Supervise, TheEndOfAPausedProgramBeginsBeforeItsSignal) {
  core::Lease lease;
  lease.state = core::LeaseState::paused;
  lease.parking = core::Parking();
  Progress progress;
  progress.phase = Phase::running;
  EXPECT_FALSE(is_being_ended(progress, &lease));
  lease.parking->then_stop = true;
  EXPECT_TRUE(is_being_ended(progress, &lease));
  lease.parking.reset();
  lease.stop_requested = true;
  EXPECT_TRUE(is_being_ended(progress, &lease));
  EXPECT_FALSE(is_being_ended(progress, nullptr));
}

}  // namespace
}  // namespace sublet::guard
