// SPDX-License-Identifier: Apache-2.0
// No lease without its stack, and no stack without its lease: each phase of a stack, with each state of its lease,
// meets each event.
#include "stacks/test_support.h"

#include <unistd.h>

namespace sublet::stacks {
namespace {

using namespace std::chrono_literals;
using core::LeaseState;

class LeasesTest : public StacksTest {
 protected:
  bool is_in(LeaseState state) const { return lease("chat") != nullptr && lease("chat")->state == state; }

  // The program of the lease is paused as a cooperative one, which never asks for its orders.
  void order_pause() {
    core::Cooperation how;
    how.way = core::CooperationWay::poll;
    how.process = proc::ProcRoot::open()->read(::getpid())->ref;
    ASSERT_TRUE(engine_->decide(core::Cooperate{lease("chat")->id, 0, how}));
    ASSERT_TRUE(engine_->decide(core::Pause{
        lease("chat")->id, 0, {core::PauseCauseKind::owner_request}, {.available = 64 * GiB, .headroom = {}}}));
  }
  void pause() {
    order_pause();
    ASSERT_TRUE(engine_->decide(core::AttemptEvent{lease("chat")->id, core::Parked{.done = true}}));
    for (int reading = 0; reading < 5 && !is_in(LeaseState::paused); ++reading) pass(100ms);
  }
  void resume() {
    pause();
    ASSERT_TRUE(engine_->decide(core::Resume{lease("chat")->id}));
  }
  void poison() {
    resume();
    ASSERT_TRUE(engine_->decide(
        core::AttemptEvent{lease("chat")->id, core::Unparked{core::Unparked::How::never, "the driver failed"}}));
  }

  // Brings the stack and its lease there; a released one was acquired before.
  void come_to(Phase phase, LeaseState state) {
    worker_.health = phase == Phase::starting ? "starting" : "healthy";
    ASSERT_TRUE(acquire("chat"));
    if (state == LeaseState::pausing) order_pause();
    if (state == LeaseState::paused) pause();
    if (state == LeaseState::resuming) resume();
    if (state == LeaseState::poisoned) poison();
    if (phase == Phase::released) {
      ASSERT_TRUE(stacks_->release("chat", After::up));
    }
    EXPECT_EQ(at("chat").phase, phase);
    EXPECT_TRUE(is_in(state)) << core::to_string(lease("chat")->state);
  }

  void stay_away() {
    worker_.tell("chat");
    settle();
    pass(return_time);
  }

  // Each living lease is that of one stack, and each stack that may have containers has a living lease.
  void expect_pairs() const {
    std::map<LeaseId, int> stacks;
    for (const auto& [name, entry] : stacks_->entries()) {
      const Stack& stack = entry.stack;
      if (stack.use.lease) ++stacks[stack.use.lease];
      if (!stack.is_up() && stack.phase != Phase::queued) continue;
      const core::Lease* lease = engine_->find(stack.use.lease);
      EXPECT_TRUE(lease != nullptr && !lease->ended()) << name << " is " << to_string(stack.phase);
    }
    for (const auto& [id, lease] : engine_->state().leases.by_id)
      EXPECT_EQ(stacks[id], lease.ended() ? 0 : 1) << core::to_string(lease.state);
  }
};

TEST_F(LeasesTest, EachEventInEachPhaseWithEachStateOfTheLease) {
  const struct {
    const char* name;
    std::function<void()> happens;
    bool down;  // the stack is down after it, and its lease has ended
  } events[] = {
      {"released, and brought down", [this] { EXPECT_TRUE(stacks_->release("chat", After::down)); }, true},
      {"its containers are removed",
       [this] {
         worker_.containers.erase("chat");
         stay_away();
       },
       true},
      {"its master is removed",
       [this] {
         worker_.containers["chat"][0].labels.erase("gpu.healthcheck-master");
         stay_away();
       },
       true},
      {"its master dies",
       [this] {
         worker_.containers["chat"][0].status = "exited";
         stay_away();
       },
       true},
      {"the engine goes and comes back",
       [this] {
         worker_.tell_engine(false, "killed");
         pass(1s);
         worker_.tell_engine(true);
         worker_.tell("chat");
       },
       false},
      {"the daemon is killed", [this] { restart(); }, false},
      {"the time to live is over", [this] { pass(31min); }, false},
      {"the engine cannot bring it down at first",
       [this] {
         worker_.down_fails["chat"] = unavailable("away");
         EXPECT_TRUE(stacks_->release("chat", After::down));
         pass(3s);
         expect_pairs();
         worker_.down_fails.clear();
       },
       true},
  };
  for (const Phase phase : {Phase::starting, Phase::ready, Phase::released}) {
    for (const LeaseState state :
         {LeaseState::active, LeaseState::pausing, LeaseState::paused, LeaseState::resuming, LeaseState::poisoned}) {
      for (const auto& event : events) {
        SCOPED_TRACE(fmt::format("{} {}, {}", to_string(phase), core::to_string(state), event.name));
        come_to(phase, state);
        event.happens();
        settle();
        for (int step = 0; step < 5; ++step) pass(1s);
        expect_pairs();
        if (event.down) {
          EXPECT_TRUE(at("chat").phase == Phase::down || at("chat").phase == Phase::failed) << states();
        }
        if (at("chat").is_up() && at("chat").phase != Phase::stopping) {
          ASSERT_TRUE(stacks_->release("chat", After::down));
        }
        for (int step = 0; step < 5; ++step) pass(1s);
        expect_pairs();
        ASSERT_FALSE(at("chat").is_up());
      }
    }
  }
}

TEST_F(LeasesTest, AWaitingAcquisitionEndsWithItsLease) {
  ASSERT_TRUE(acquire("image"));
  for (const bool offered : {false, true}) {
    ASSERT_TRUE(acquire("chat"));
    EXPECT_EQ(state("chat"), "queued");
    if (offered) {
      ASSERT_TRUE(release("image", true));
    }
    ASSERT_TRUE(stacks_->release("chat", After::down));
    settle();
    EXPECT_EQ(state("chat"), "down");
    expect_pairs();
  }
}

TEST_F(LeasesTest, AcquiringAPausedStackResumesItFirst) {
  come_to(Phase::released, LeaseState::paused);
  ASSERT_TRUE(acquire("chat", 1001));
  settle();
  EXPECT_EQ(state("chat"), "starting") << "its processes do not run yet";
  EXPECT_TRUE(is_in(LeaseState::resuming));
  EXPECT_EQ(at("chat").use.expires_at, std::nullopt) << "its time counts from ready";
  pass(20min);
  EXPECT_EQ(state("chat"), "starting") << "it is not given up while it cannot run";
  ASSERT_TRUE(engine_->decide(core::AttemptEvent{lease("chat")->id, core::Unparked{core::Unparked::How::runs}}));
  pass(1s);
  EXPECT_EQ(state("chat"), "ready");
  EXPECT_EQ(worker_.ups.size(), 1U) << "it was up";
}

TEST_F(LeasesTest, ARenewalResumes) {
  come_to(Phase::ready, LeaseState::paused);
  ASSERT_TRUE(stacks_->renew("chat", 1h));
  settle();
  EXPECT_TRUE(is_in(LeaseState::resuming));
  pass(20min);
  ASSERT_TRUE(engine_->decide(core::AttemptEvent{lease("chat")->id, core::Unparked{core::Unparked::How::runs}}));
  settle();
  EXPECT_EQ(at("chat").use.expires_at, clock_->now() + 1h) << "its time stood still until then";
}

TEST_F(LeasesTest, APoisonedStackIsStartedAnew) {
  come_to(Phase::released, LeaseState::poisoned);
  EXPECT_EQ(acquire("chat", 1001).error().code, Code::InUse) << "it is brought down first";
  settle();
  ASSERT_TRUE(acquire("chat", 1001));
  EXPECT_EQ(state("chat"), "ready");
  EXPECT_EQ(worker_.ups.size(), 2U);
}

TEST_F(LeasesTest, AStackThatIsReleasedWhileItStartsMayStayUp) {
  come_to(Phase::starting, LeaseState::active);
  ASSERT_TRUE(stacks_->release("chat", After::up));
  settle();
  EXPECT_EQ(state("chat"), "released");
  ASSERT_TRUE(acquire("chat", 1001));
  EXPECT_EQ(state("chat"), "starting") << "it is not healthy yet";
  worker_.containers["chat"][0].health = "healthy";
  worker_.tell("chat");
  settle();
  EXPECT_EQ(state("chat"), "ready");
  EXPECT_EQ(worker_.ups.size(), 1U);
}

}  // namespace
}  // namespace sublet::stacks
