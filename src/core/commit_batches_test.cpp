// SPDX-License-Identifier: Apache-2.0
#include "core/commit_batches.h"

#include <gtest/gtest.h>

namespace sublet::core {
namespace {

Plan plan_of(std::size_t givers, std::size_t takers) {
  Plan plan;
  plan.outcome = LeaseId{1};
  plan.givers = givers;
  plan.transitions = {"released", "granted"};
  plan.actions = {TakeSnapshot{}};
  plan.settled = {LeaseId{1}};
  plan.learned.emplace_back();
  plan.records.emplace_back();
  plan.grants.emplace_back();
  plan.wake_at = Time{77};
  for (std::uint64_t number = 1; number <= givers + takers; ++number) {
    Lease lease;
    lease.id = {number};
    plan.changed.push_back(lease);
    // Reasons come in the order of the decisions, which is not that of `changed`.
    plan.reasons.insert(plan.reasons.begin(), Reason{lease.id, Time{}, ReasonKind::granted});
  }
  plan.reasons.push_back({LeaseId{4711}, Time{}, ReasonKind::queued});
  return plan;
}

TEST(Portions, AFewAreOne) {
  const auto all = commit_batches(plan_of(20, 10), 10);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].changed.size(), 30U);
  EXPECT_EQ(all[0].givers, 20U);
  EXPECT_EQ(all[0].reasons.size(), 31U);
}

TEST(Portions, NothingIsLostAndWhatGivesComesFirst) {
  const auto all = commit_batches(plan_of(3, 25), 10);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].changed.size(), 13U);
  EXPECT_EQ(all[1].changed.size(), 10U);
  EXPECT_EQ(all[2].changed.size(), 5U);
  std::uint64_t next = 1;
  for (const Plan& portion : all) {
    for (const Lease& lease : portion.changed) EXPECT_EQ(lease.id.number, next++);
    EXPECT_EQ(portion.wake_at, Time{77});
  }
  EXPECT_EQ(all[0].givers, 3U);
  EXPECT_EQ(all[1].givers, 0U);
  EXPECT_EQ(all[0].reasons.size(), 14U);  // with that of the lease which did not change
  EXPECT_EQ(all[1].reasons.size(), 10U);
  for (const Reason& reason : all[1].reasons) {
    EXPECT_GE(reason.lease.number, 14U);
    EXPECT_LE(reason.lease.number, 23U);
  }
  EXPECT_EQ(*all[0].outcome, LeaseId{1});
  EXPECT_EQ(all[0].settled.size(), 1U);
  EXPECT_EQ(all[0].learned.size(), 1U);
  EXPECT_EQ(all[0].records.size(), 1U);
  EXPECT_EQ(all[0].grants.size(), 1U);
  EXPECT_EQ(all[0].transitions.size(), 2U);
  EXPECT_TRUE(all[0].actions.empty());
  EXPECT_TRUE(all[1].settled.empty());
  EXPECT_EQ(all[1].transitions, std::vector<std::string_view>{"portion"}) << "a crash before it is tested";
  EXPECT_EQ(all[2].actions.size(), 1U);
}

// An answer is remembered with the first portion: what it tells of must not be lost where the answer is kept.
TEST(Portions, TheLeaseThatWasAskedForComesWithTheAnswer) {
  Plan plan = plan_of(3, 25);
  plan.outcome = LeaseId{20};
  const auto all = commit_batches(std::move(plan), 10);
  ASSERT_EQ(all.size(), 3U);
  ASSERT_EQ(all[0].changed.size(), 14U);
  EXPECT_EQ(all[0].changed.back().id, LeaseId{20});
  EXPECT_EQ(all[0].givers, 3U);
  EXPECT_EQ(all[0].reasons.size(), 15U);
  EXPECT_EQ(all[1].changed.size(), 9U);
  EXPECT_EQ(all[1].reasons.size(), 9U);
}

}  // namespace
}  // namespace sublet::core
