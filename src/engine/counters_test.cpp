// SPDX-License-Identifier: Apache-2.0
#include "engine/counters.h"

#include <gtest/gtest.h>

namespace sublet::engine {
namespace {

constexpr std::int64_t second = 1'000'000'000;

core::Lease lease(std::uint64_t id, core::LeaseState state, std::optional<Time> granted = {}) {
  core::Lease lease;
  lease.id.number = id;
  lease.uid = 1000;
  lease.user = lease.tenant = "ana";
  lease.state = state;
  lease.vram = GiB;
  lease.devices = {"GPU-0"};
  lease.granted_at = granted;
  return lease;
}

core::Plan plan(core::Lease changed) {
  core::Plan plan;
  plan.changed.push_back(std::move(changed));
  return plan;
}

TEST(Counters, CountsLiveLeasesWaitsAndEnds) {
  Counters counters;
  counters.observe(plan(lease(1, core::LeaseState::queued)), Time{});
  EXPECT_EQ(counters.live(1000), 1);
  counters.observe(plan(lease(1, core::LeaseState::active, Time{5 * second})), Time{5 * second});
  counters.observe(plan(lease(1, core::LeaseState::active, Time{5 * second})), Time{6 * second});
  EXPECT_EQ(counters.waits()[2], 1U) << "once, in the class up to 10 s";
  EXPECT_DOUBLE_EQ(counters.waited_seconds(), 5.0);
  core::Lease ended = lease(1, core::LeaseState::ended, Time{5 * second});
  ended.end_reason = core::EndReason::released;
  counters.observe(plan(ended), Time{8 * second});
  counters.observe(plan(ended), Time{9 * second});  // it settles
  EXPECT_EQ(counters.live(1000), 0);
  EXPECT_EQ(counters.ended().at(core::EndReason::released), 1U);
}

TEST(Counters, ALeaseThatIsGivenToAnotherUserCountsForThatUser) {
  Counters counters;
  core::Lease given = lease(1, core::LeaseState::active, Time{});
  counters.observe(plan(given), Time{});
  given.uid = 1001;
  given.user = given.tenant = "bea";
  counters.observe(plan(given), Time{10 * second});
  EXPECT_EQ(counters.live(1000), 0);
  EXPECT_EQ(counters.live(1001), 1);
  const auto used = counters.byte_seconds(Time{30 * second});
  EXPECT_DOUBLE_EQ(used.at({"ana", "ana"}), 10.0 * static_cast<double>(GiB.count));
  EXPECT_DOUBLE_EQ(used.at({"bea", "bea"}), 20.0 * static_cast<double>(GiB.count));
}

TEST(Counters, CountsWaitsForMore) {
  Counters counters;
  core::Lease grows = lease(1, core::LeaseState::active, Time{});
  counters.observe(plan(grows), Time{});
  grows.resize = core::Upgrade{2 * GiB, Time{second}};
  counters.observe(plan(grows), Time{second});
  core::State state;
  counters.reset(state, Time{2 * second});
  EXPECT_EQ(counters.waits()[0], 1U) << "of the first grant alone";
  counters.observe(plan(grows), Time{2 * second});
  grows.resize.reset();
  grows.vram = 2 * GiB;
  grows.sized = core::Sized{GiB, Time{41 * second}, {}};
  counters.observe(plan(grows), Time{41 * second});
  counters.observe(plan(grows), Time{42 * second});
  EXPECT_EQ(counters.waits()[3], 1U) << "once, in the class up to 60 s";
  grows.vram = GiB;
  grows.sized->until = Time{50 * second};
  counters.observe(plan(grows), Time{50 * second});
  EXPECT_DOUBLE_EQ(counters.waited_seconds(), 40.0) << "nobody waits for less";
}

TEST(Counters, ChargesBytesForTheTimeTheyAreReserved) {
  Counters counters;
  counters.observe(plan(lease(1, core::LeaseState::queued)), Time{});
  counters.observe(plan(lease(1, core::LeaseState::active, Time{2 * second})), Time{2 * second});
  const auto gib = static_cast<double>(GiB.count);
  EXPECT_DOUBLE_EQ(counters.byte_seconds(Time{5 * second}).at({"ana", "ana"}), 3 * gib);
  core::Lease smaller = lease(1, core::LeaseState::active, Time{2 * second});
  smaller.vram = 512 * MiB;
  counters.observe(plan(smaller), Time{6 * second});
  counters.observe(plan(lease(1, core::LeaseState::ended, Time{2 * second})), Time{8 * second});
  EXPECT_DOUBLE_EQ(counters.byte_seconds(Time{100 * second}).at({"ana", "ana"}), 5 * gib);
}

TEST(Counters, KeepsTheNumberOfNamesBounded) {
  Counters counters;
  for (std::uint64_t id = 1; id <= Counters::who_limit + 50; ++id) {
    core::Lease one = lease(id, core::LeaseState::active, Time{});
    one.tenant = "tenant-" + std::to_string(id);
    counters.observe(plan(one), Time{});
  }
  const auto totals = counters.byte_seconds(Time{second});
  EXPECT_LE(totals.size(), Counters::who_limit + 1);
  EXPECT_DOUBLE_EQ(totals.at({"other", "other"}), 50 * static_cast<double>(GiB.count));
}

TEST(Counters, CountsWaitsByTenant) {
  Counters counters;
  core::Lease one = lease(1, core::LeaseState::queued);
  one.tenant = "lab";
  counters.observe(plan(one), Time{});
  one.state = core::LeaseState::active;
  one.granted_at = Time{4 * second};
  counters.observe(plan(one), Time{4 * second});
  counters.observe(plan(one), Time{9 * second});
  ASSERT_EQ(counters.waits_by_tenant().size(), 1U);
  EXPECT_EQ(counters.waits_by_tenant().at("lab").number, 1U);
  EXPECT_DOUBLE_EQ(counters.waits_by_tenant().at("lab").seconds, 4.0);
  for (std::uint64_t id = 2; id <= Counters::who_limit + 50; ++id) {
    core::Lease other = lease(id, core::LeaseState::active, Time{});
    other.tenant = "tenant-" + std::to_string(id);
    counters.observe(plan(other), Time{});
  }
  EXPECT_EQ(counters.waits_by_tenant().size(), Counters::who_limit + 1);
  EXPECT_EQ(counters.waits_by_tenant().at("other").number, 50U);
}

// Each try of each method counts once, by its result.
TEST(Counters, CountsWhatCameOfPauses) {
  using core::PauseMethod;
  using Result = Counters::PauseResult;
  const auto in = [](core::LeaseState state, PauseMethod method) {
    core::Lease changed = lease(1, state, Time{});
    changed.parking.emplace().method = method;
    return plan(changed);
  };
  Counters counters;
  counters.observe(in(core::LeaseState::pausing, PauseMethod::cooperative), Time{});
  counters.observe(in(core::LeaseState::pausing, PauseMethod::driver), Time{});  // the first method failed
  EXPECT_EQ(counters.pauses({PauseMethod::cooperative, Result::undone}), 1U);
  core::Plan back = in(core::LeaseState::resuming, PauseMethod::driver);  // paused, and resuming at once
  back.reasons.push_back({LeaseId{1}, Time{}, core::ReasonKind::paused});
  counters.observe(back, Time{});
  EXPECT_EQ(counters.pauses({PauseMethod::driver, Result::paused}), 1U);
  counters.observe(in(core::LeaseState::pausing, PauseMethod::driver), Time{});
  counters.observe(in(core::LeaseState::resuming, PauseMethod::driver), Time{});
  EXPECT_EQ(counters.pauses({PauseMethod::driver, Result::undone}), 1U);
  counters.observe(in(core::LeaseState::pausing, PauseMethod::driver), Time{});
  core::Lease ended = lease(1, core::LeaseState::ended, Time{});
  counters.observe(plan(ended), Time{});
  EXPECT_EQ(counters.pauses({PauseMethod::driver, Result::ended}), 1U);
  EXPECT_EQ(counters.pauses({PauseMethod::driver, Result::paused}), 1U);
}

TEST(Counters, StartsFromWhatIsThere) {
  Counters counters;
  counters.observe(plan(lease(7, core::LeaseState::active, Time{})), Time{});
  counters.reset(core::State{}, Time{second});
  EXPECT_EQ(counters.live(1000), 0);
  EXPECT_DOUBLE_EQ(counters.byte_seconds(Time{9 * second}).at({"ana", "ana"}), static_cast<double>(GiB.count));
}

}  // namespace
}  // namespace sublet::engine
