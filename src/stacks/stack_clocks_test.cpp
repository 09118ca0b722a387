// SPDX-License-Identifier: Apache-2.0
// The limits of stacks: times to live, and the time until a stack must be ready.
#include "stacks/test_support.h"

#include <unistd.h>

namespace sublet::stacks {
namespace {

using namespace std::chrono_literals;
using core::Tier;

class StackClocks : public StacksTest {
 protected:
  // Parks the stack, and returns its lease.
  LeaseId park(const std::string& name) {
    const LeaseId id = at(name).use.lease;
    core::Cooperation how;
    how.process = {::getpid(), 1};
    EXPECT_TRUE(engine_->decide(core::Cooperate{id, 0, how}));
    EXPECT_TRUE(engine_->decide(core::Pause{id, 0, {}, core::HostMemory{64 * GiB, {}}}));
    EXPECT_TRUE(engine_->decide(core::AttemptEvent{id, core::Parked{true}}));
    for (int reading = 0; reading < 4; ++reading) pass(1s);
    EXPECT_EQ(lease(name)->state, core::LeaseState::paused);
    return id;
  }
  void resume(LeaseId id) {
    EXPECT_TRUE(engine_->decide(core::Resume{id}));
    for (int reading = 0; reading < 4; ++reading) pass(1s);
    EXPECT_TRUE(engine_->decide(core::AttemptEvent{id, core::Unparked{core::Unparked::How::runs}}));
    settle();
  }
};

TEST_F(StackClocks, TheTimeToLiveStandsStillWhileTheStackIsParked) {
  for (const bool restarts : {false, true}) {
    const std::string name = restarts ? "voice" : "chat";
    ASSERT_TRUE(acquire(name, 1000, 10min));
    pass(4min);
    const LeaseId id = park(name);
    pass(3h);
    if (restarts) restart(1h);
    EXPECT_EQ(state(name), "ready");
    resume(id);
    EXPECT_EQ(*at(name).use.expires_at - clock_->now(), 6min);
    pass(5min);
    EXPECT_EQ(state(name), "ready");
    pass(61s);
    EXPECT_EQ(state(name), "released");
  }
}

TEST_F(StackClocks, TheTimeUntilReadyStandsStillOnceWhileTheStackIsParked) {
  worker_.health = "starting";
  ASSERT_TRUE(acquire("chat"));
  pass(4min);
  const Duration left = *at("chat").use.ready_by - clock_->now();
  const LeaseId id = park("chat");
  pass(3h);
  EXPECT_EQ(state("chat"), "starting");
  resume(id);
  EXPECT_EQ(*at("chat").use.ready_by - clock_->now(), left);
}

TEST_F(StackClocks, TheTimeToLiveEndsAnAcquisitionAndARenewalProlongsIt) {
  ASSERT_TRUE(acquire("chat", 1000, 10min));
  pass(6min);
  ASSERT_TRUE(stacks_->renew("chat", {}));
  pass(6min);
  EXPECT_EQ(state("chat"), "ready");
  ASSERT_TRUE(stacks_->renew("chat", 1min));
  pass(61s);
  EXPECT_EQ(state("chat"), "released");
  EXPECT_EQ(at("chat").why, "its time to live is over");
  EXPECT_EQ(lease("chat")->tier, Tier::spot);
  const Status late = stacks_->renew("chat", {});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::Stale);
}

TEST_F(StackClocks, AStackThatNeverBecomesReadyIsBroughtDown) {
  worker_.health = "unhealthy";
  ASSERT_TRUE(acquire("chat"));
  EXPECT_EQ(state("chat"), "starting") << "the report may be of a moment before";
  pass(1s);
  EXPECT_EQ(state("chat"), "failed");
  EXPECT_EQ(at("chat").why, "it did not become ready: container chat-api-1 of service api is unhealthy");
  worker_.health = "starting";
  ASSERT_TRUE(acquire("chat"));
  pass(14min);
  EXPECT_EQ(state("chat"), "starting");
  pass(1min);
  EXPECT_EQ(state("chat"), "failed");
}

TEST_F(StackClocks, AStartThatIsPausedDoesNotFailByItsHealth) {
  worker_.health = "starting";
  ASSERT_TRUE(acquire("chat"));
  core::Cooperation how;
  how.way = core::CooperationWay::webhook;
  how.address = "http://127.0.0.1:1/yield";
  ASSERT_TRUE(engine_->decide(core::Cooperate{lease("chat")->id, 0, how}));
  ASSERT_TRUE(engine_->decide(core::Pause{
      lease("chat")->id, 0, {core::PauseCauseKind::owner_request}, {.available = 64 * GiB, .headroom = {}}}));
  ASSERT_EQ(lease("chat")->state, core::LeaseState::pausing);
  worker_.containers["chat"][0].health = "unhealthy";
  worker_.tell("chat");
  pass(10s);
  EXPECT_EQ(state("chat"), "starting");
}

}  // namespace
}  // namespace sublet::stacks
