// SPDX-License-Identifier: Apache-2.0
// A program that gets its orders by signals, through an actor that only records.
#include "pause/local_cooperation.h"

#include "machine/local_programs_test.h"

#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <optional>

namespace sublet::pause {
namespace {

using namespace std::chrono_literals;
using Kind = ParkOutcome::Kind;

struct ToldBySignals : testing::Test {
  ToldBySignals() {
    core::Cooperation how;
    how.way = core::CooperationWay::signal;
    how.process = world.lease.owner.process;
    how.pause_signal = SIGUSR1;
    how.resume_signal = SIGUSR2;
    world.lease.cooperation = how;
  }
  // Tells the actor about the program.
  void follow() {
    world.programs.follow(world.lease, false);
    world.actor.answer(actor::Code::ok);
    world.actor.orders.clear();
  }
  LocalCooperation::Done note() {
    outcome.reset();
    return [this](const ParkOutcome& its) { outcome = its; };
  }
  void yield() { cooperation.yield(world.lease, "somebody asks", 10s, note()); }
  void resume() { cooperation.resume(world.lease, 10s, note()); }
  std::vector<int> told() const {
    std::vector<int> signals;
    for (const actor::Order& order : world.actor.orders)
      if (order.verb == actor::Verb::tell) signals.push_back(order.signal);
    return signals;
  }

  machine::FollowedProgram world;
  LocalCooperation cooperation{world.io, world.programs, "/nonexistent"};
  std::optional<ParkOutcome> outcome;
};

TEST_F(ToldBySignals, WhoCannotBeReachedIsSaidNothingOfAndKnowsNothing) {
  yield();
  EXPECT_FALSE(outcome) << "later";
  world.io.poll();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->kind, Kind::undone);
  EXPECT_EQ(outcome->code, core::ObstacleCode::unreachable);
  follow();
  resume();
  world.io.poll();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->kind, Kind::done);
  EXPECT_TRUE(told().empty()) << "it was never told to yield";
}

TEST_F(ToldBySignals, WhoHasNoHandlerIsToBlame) {
  follow();
  yield();
  world.actor.answer(actor::Code::unhandled);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->code, core::ObstacleCode::notify_failed);
  EXPECT_EQ(outcome->kind, Kind::unknown);
}

// A yield over this way is not repeated, so that another victim is chosen. A resume order is sent as soon as possible.
TEST_F(ToldBySignals, AWayThatMayNotBeUsedDoesNotWork) {
  follow();
  yield();
  world.actor.answer(actor::Code::wrong_user);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->code, core::ObstacleCode::notify_failed);
  yield();
  world.actor.answer(actor::Code::ok);
  resume();
  world.actor.answer(actor::Code::wrong_user);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->code, core::ObstacleCode::unreachable);
}

TEST_F(ToldBySignals, WhoMayHaveBeenToldIsToldToGoOn) {
  follow();
  yield();
  world.actor.answer(actor::Code::lost, 0, {}, ECONNRESET);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->kind, Kind::unknown);
  resume();
  world.io.poll();
  EXPECT_FALSE(outcome);
  EXPECT_EQ(told(), (std::vector{SIGUSR1, SIGUSR2}));
}

// Its user may leave there what it likes.
TEST_F(ToldBySignals, ALeftoverInThePlaceOfItsAnswerIsRemoved) {
  const proc::TempDir dir;
  LocalCooperation its(world.io, world.programs, dir.path());
  const std::string file = its.answer_file(world.lease);
  EXPECT_EQ(file, fmt::format("{}/{}/{}-yield", dir.path(), world.lease.uid, to_string(world.lease.id)));
  follow();
  std::filesystem::create_directories(file);
  its.yield(world.lease, "somebody asks", 10s, note());
  EXPECT_FALSE(std::filesystem::exists(file));
  std::filesystem::create_symlink(dir.path("other"), file);
  its.resume(world.lease, 10s, note());
  EXPECT_FALSE(std::filesystem::is_symlink(file));
}

// The actor sees the end of the process before the daemon does.
TEST_F(ToldBySignals, WhoHasEndedGoesOnByThatAndYieldsNothing) {
  follow();
  for (const bool yields : {true, false}) {
    yields ? yield() : resume();
    ASSERT_EQ(told().size(), yields ? 1U : 2U);
    if (yields) ::kill(world.child.pid(), SIGKILL), world.child.wait_for_end();
    world.actor.answer(actor::Code::gone);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->kind, yields ? Kind::undone : Kind::done);
    EXPECT_EQ(outcome->code, yields ? core::ObstacleCode::gone : core::ObstacleCode::none);
  }
}

// The core may end a lease because of the outcome.
TEST_F(ToldBySignals, ALeaseMayEndByWhatComesOfTellingIt) {
  int times = 0;
  cooperation.resume(world.lease, 10s, [&](const ParkOutcome& its) {
    ++times;
    EXPECT_EQ(its.code, core::ObstacleCode::unreachable);
    core::Lease ended = world.lease;
    ended.stop_requested = true;
    cooperation.forget(ended);
    cooperation.let_go(ended.id);
  });
  world.io.poll();
  EXPECT_EQ(times, 1);
  EXPECT_EQ(cooperation.order(world.lease.id).number, 0U) << "nothing of it is left";
}

TEST_F(ToldBySignals, WhoseLeaseEndsWhileItIsToldToGoOnIsToldAgain) {
  follow();
  resume();
  cooperation.forget(world.lease);
  ASSERT_EQ(told(), std::vector{SIGUSR2});
  world.actor.answer(actor::Code::lost);  // the actor never got the order
  cooperation.let_go(world.lease.id);
  world.io.poll();
  EXPECT_EQ(told(), (std::vector{SIGUSR2, SIGUSR2}));
  EXPECT_FALSE(outcome) << "nobody waits for it any more";
}

}  // namespace
}  // namespace sublet::pause
