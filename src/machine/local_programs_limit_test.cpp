// SPDX-License-Identifier: Apache-2.0
#include "machine/local_programs_test.h"

#include <optional>
#include <vector>

namespace sublet::machine {
namespace {

TEST(ProgramLimits, TheSmallestLimitOfProcessorTimeCounts) {
  FollowedProgram world;
  std::vector<CpuLimited> results;
  const auto limit = [&](CpuCause cause, int percent, actor::Code code = actor::Code::ok) {
    world.programs.limit_cpu(world.lease.id, cause, percent, [&](const CpuLimited& done) { results.push_back(done); });
    world.actor.answer(code);
    return world.actor.orders.back().percent;
  };
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::ok);
  EXPECT_EQ(limit(CpuCause::memory, 25), 25u);
  EXPECT_EQ(limit(CpuCause::share, 50), 25u);
  EXPECT_EQ(limit(CpuCause::share, 10), 10u);
  EXPECT_EQ(limit(CpuCause::share, 0), 25u);
  // A limit that was refused is none, and a change that was refused leaves the limit in force.
  EXPECT_EQ(limit(CpuCause::share, 5, actor::Code::failed), 5u);
  EXPECT_FALSE(results.back().passes || results.back().why_not.empty());
  EXPECT_EQ(limit(CpuCause::share, 20), 20u);
  EXPECT_EQ(limit(CpuCause::share, 5, actor::Code::failed), 5u);
  EXPECT_EQ(limit(CpuCause::memory, 30), 20u);
  EXPECT_EQ(limit(CpuCause::memory, 25), 20u);
  EXPECT_EQ(limit(CpuCause::share, 0), 25u);
  // A new actor has lifted the limits of the one before.
  world.actor.orders.clear();
  world.programs.introduce_all();
  world.actor.answer(actor::Code::ok);
  ASSERT_EQ(world.actor.verbs(), (std::vector{actor::Verb::follow, actor::Verb::slow}));
  EXPECT_EQ(world.actor.orders.back().percent, 25u);
  world.actor.answer(actor::Code::ok);
  EXPECT_EQ(limit(CpuCause::memory, 0), 0u);
}

TEST(ProgramLimits, OnlyAProgramWithAKeeperMayBeLimitedLater) {
  FollowedProgram world;
  std::optional<CpuLimited> result;
  const auto limit = [&](int percent) {
    world.programs.limit_cpu(world.lease.id, CpuCause::share, percent, [&](const CpuLimited& done) { result = done; });
    world.io.restart();
    world.io.poll();
    return result.value();
  };
  world.programs.follow(world.lease, false);
  EXPECT_EQ(limit(50).why_not, "the actor does not know its program");
  EXPECT_TRUE(limit(50).passes);
  world.actor.answer(actor::Code::wrong_user);
  EXPECT_EQ(limit(50).why_not, to_string(actor::Code::wrong_user));
  world.lease.owner.keeper = {};
  world.programs.follow(world.lease, false);
  EXPECT_EQ(limit(50).why_not, "Sublet did not start its program");
  EXPECT_FALSE(limit(50).passes);
  EXPECT_EQ(limit(0).why_not, "");
}

}  // namespace
}  // namespace sublet::machine
