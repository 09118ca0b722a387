// SPDX-License-Identifier: Apache-2.0
// Keepers that the actor starts: the order, and the report of the keeper.
#include "machine/keepers.h"

#include "machine/local_programs_test.h"

#include <fcntl.h>

#include <optional>

namespace sublet::machine {
namespace {

struct ActorKeepersTest : ::testing::Test {
  ActorKeepersTest() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    actor.attachment = Fd(ends[0]);
    report = Fd(ends[1]);
    keepers->start({.uid = 1000, .user = "ana", .tag = "serve", .host = "", .document = "{}", .log_dir = "/nowhere"},
                   [this](Result<ProcessRef> found) { started = std::move(found); });
  }
  void say(std::string_view text) {
    EXPECT_EQ(::write(report.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void settle() {
    io.restart();
    io.poll();
  }

  boost::asio::io_context io;
  NotingActor actor;
  std::unique_ptr<Keepers> keepers = actor_keepers(io, actor);
  Fd report;  // the keeper's end
  std::optional<Result<ProcessRef>> started;
};

TEST_F(ActorKeepersTest, OrdersAKeeperWithItsDocumentAndReadsItsReport) {
  ASSERT_EQ(actor.orders.size(), 1u);
  EXPECT_EQ(actor.orders[0].verb, actor::Verb::keep);
  EXPECT_EQ(actor.orders[0].uid, 1000u);
  EXPECT_EQ(actor.attached[0], 1u);
  actor.answer(actor::Code::ok);
  settle();
  EXPECT_FALSE(started);
  say("4711");
  settle();
  EXPECT_FALSE(started) << "the line has no end yet";
  say(" 99\n");
  settle();
  ASSERT_TRUE(started && *started);
  EXPECT_EQ(**started, (ProcessRef{4711, 99}));
}

TEST_F(ActorKeepersTest, ReportsWhyTheActorRefused) {
  actor.attachment.reset();
  actor.answer(actor::Code::denied, 0, "uid 1000 is no user");
  settle();
  ASSERT_TRUE(started && !*started);
  EXPECT_EQ(started->error().detail, "the actor started no keeper for user ana: uid 1000 is no user");
}

TEST_F(ActorKeepersTest, ReportsALostActor) {
  actor.attachment.reset();
  actor.answer(actor::Code::lost);
  settle();
  ASSERT_TRUE(started && !*started);
  EXPECT_EQ(started->error().detail, "the actor started no keeper for user ana: the actor does not run");
}

TEST_F(ActorKeepersTest, ReportsWhyTheKeeperDidNotStart) {
  actor.answer(actor::Code::ok);
  say("failed: uid 1000 has no account\n");
  settle();
  ASSERT_TRUE(started && !*started);
  EXPECT_EQ(started->error().detail, "uid 1000 has no account");
}

TEST_F(ActorKeepersTest, ReportsAKeeperThatEndedWithoutAWord) {
  actor.answer(actor::Code::ok);
  settle();
  report.reset();
  settle();
  ASSERT_TRUE(started && !*started);
  EXPECT_EQ(started->error().detail, "the keeper ended before it said its pid");
}

}  // namespace
}  // namespace sublet::machine
