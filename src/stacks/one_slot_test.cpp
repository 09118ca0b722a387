// SPDX-License-Identifier: Apache-2.0
#include "stacks/one_slot.h"
#include "stacks/test_support.h"

#include <unistd.h>

namespace sublet::stacks {
namespace {

using namespace std::chrono_literals;
using Kind = SlotAnswer::Kind;

class OneSlotTest : public StacksTest {
 protected:
  OneSlotTest() { add(); }
  ~OneSlotTest() override { engine_->stop(); }

  void add() {
    slot_.emplace(*engine_, *stacks_, OneSlotOptions{.uid = 1000, .user = "ana"});
    engine_->capabilities().add(*slot_);
    slot_->loaded({}, clock_->now());
  }

  // The answer so far; it is filled in later if the call waits.
  std::shared_ptr<std::optional<SlotAnswer>> ask(const std::string& target, std::string token = {},
                                                 std::optional<std::int64_t> priority = {}, bool wait_turn = false,
                                                 bool wait_ready = true) {
    auto answer = std::make_shared<std::optional<SlotAnswer>>();
    SlotCall call;
    call.ask = {target, "ana", std::move(token), 60s, priority};
    call.wait = 30s;
    call.wait_turn = wait_turn;
    call.wait_ready = wait_ready;
    slot_->acquire(std::move(call), [answer](const SlotAnswer& got) { *answer = got; });
    settle();
    return answer;
  }

  std::optional<OneSlot> slot_;
};

TEST_F(OneSlotTest, AGrantedCallHasItsStackReady) {
  const auto got = ask("chat");
  ASSERT_TRUE(*got);
  EXPECT_EQ((*got)->kind, Kind::granted);
  EXPECT_EQ(state("chat"), "ready");
  EXPECT_EQ(slot_->slot().holder()->expires_at, clock_->now() + 60s);
  EXPECT_EQ(slot_->slot().last_target(), "chat");
  EXPECT_EQ(lease("chat")->user, "ana");
  EXPECT_EQ((*ask("chat", (*got)->token))->kind, Kind::granted);
  EXPECT_EQ((*ask("image"))->detail, "gpu busy: service:chat");
  EXPECT_EQ((*ask("nosuch"))->detail, "unknown target: nosuch");
}

TEST_F(OneSlotTest, ARenewalOfAPausedStackIsAnsweredWhenItRuns) {
  const std::string token = (*ask("chat"))->token;
  const LeaseId id = lease("chat")->id;
  core::Cooperation how;
  how.way = core::CooperationWay::poll;
  how.process = proc::ProcRoot::open()->read(::getpid())->ref;
  ASSERT_TRUE(engine_->decide(core::Cooperate{id, 0, how}));
  ASSERT_TRUE(engine_->decide(
      core::Pause{id, 0, {core::PauseCauseKind::owner_request}, {.available = 64 * GiB, .headroom = {}}}));
  ASSERT_TRUE(engine_->decide(core::AttemptEvent{id, core::Parked{.done = true}}));
  for (int reading = 0; reading < 5 && lease("chat")->state != core::LeaseState::paused; ++reading) pass(100ms);
  const auto renewed = ask("chat", token);
  EXPECT_FALSE(*renewed) << "its processes stand still";
  ASSERT_EQ(lease("chat")->state, core::LeaseState::resuming);
  ASSERT_TRUE(engine_->decide(core::AttemptEvent{id, core::Unparked{core::Unparked::How::runs}}));
  settle();
  ASSERT_TRUE(*renewed);
  EXPECT_EQ((*renewed)->kind, Kind::granted);
}

TEST_F(OneSlotTest, TheHeadOfTheQueueClaimsAfterARelease) {
  const std::string first = (*ask("chat"))->token;
  const auto queued = ask("image", "", 0);
  EXPECT_EQ((*queued)->kind, Kind::queued);
  const std::string second = (*queued)->token;
  EXPECT_EQ((*ask("image", second))->detail, "gpu busy: service:chat; queue_index:0");
  EXPECT_FALSE(slot_->release("other", false));
  ASSERT_TRUE(slot_->release(first, false));
  settle();
  EXPECT_EQ(state("chat"), "released") << "it stays up";
  const auto claimed = ask("image", second);
  ASSERT_TRUE(*claimed);
  EXPECT_EQ((*claimed)->kind, Kind::granted);
  EXPECT_EQ(states(), "down ready down") << "the released stack made room";
}

TEST_F(OneSlotTest, AHeldWaitIsAnsweredAtItsTurn) {
  const std::string first = (*ask("chat"))->token;
  const auto waits = ask("voice", "", {}, true);
  EXPECT_FALSE(*waits);
  pass(5s);
  ASSERT_TRUE(slot_->release(first, false));
  settle();
  ASSERT_TRUE(*waits);
  EXPECT_EQ((*waits)->kind, Kind::granted);
  const auto late = ask("chat", "", {}, true);
  pass(31s);
  ASSERT_TRUE(*late);
  EXPECT_EQ((*late)->kind, Kind::queued) << "it keeps its place";
}

TEST_F(OneSlotTest, AFailedStartFreesTheSlotAndCanBeTriedAtOnce) {
  worker_.up_fails.emplace("chat", unavailable("port is already allocated"));
  worker_.up_fails.at("chat").code = Code::InUse;
  const auto failed = ask("chat");
  ASSERT_TRUE(*failed);
  EXPECT_EQ((*failed)->kind, Kind::failed);
  EXPECT_NE((*failed)->detail.find("port is already allocated"), std::string::npos) << (*failed)->detail;
  EXPECT_FALSE(slot_->slot().holder());
  EXPECT_EQ(worker_.downs.size(), 1U);
  worker_.up_fails.clear();
  EXPECT_EQ((*ask("chat"))->kind, Kind::granted);
}

TEST_F(OneSlotTest, AStackThatIsLateIsBroughtDown) {
  worker_.health = "starting";
  const auto late = ask("chat");
  EXPECT_FALSE(*late);
  EXPECT_EQ((*ask("image"))->detail, "gpu busy: service:chat");
  pass(31s);
  ASSERT_TRUE(*late);
  EXPECT_EQ((*late)->kind, Kind::late);
  EXPECT_EQ(states(), "down down down");
  EXPECT_FALSE(slot_->slot().holder());
}

TEST_F(OneSlotTest, WithoutWaitingForReadyTheTimeCountsFromReadyToo) {
  worker_.health = "starting";
  const auto got = ask("chat", "", {}, false, false);
  ASSERT_TRUE(*got);
  EXPECT_EQ((*got)->kind, Kind::granted);
  EXPECT_FALSE(slot_->slot().holder()->expires_at);
  pass(100s);
  EXPECT_TRUE(slot_->slot().holder()) << "it is still starting";
  worker_.containers["chat"][0].health = "healthy";
  worker_.tell("chat");
  settle();
  EXPECT_EQ(slot_->slot().holder()->expires_at, clock_->now() + 60s);
  pass(61s);
  EXPECT_FALSE(slot_->slot().holder());
  EXPECT_EQ(state("chat"), "released");
}

TEST_F(OneSlotTest, AStackOfAnotherUserIsWaitedForAndThenBusy) {
  ASSERT_TRUE(acquire("chat", 1001));
  const auto busy = ask("chat");
  EXPECT_FALSE(*busy);
  pass(31s);
  ASSERT_TRUE(*busy);
  EXPECT_EQ((*busy)->detail, "gpu busy: service:chat");
  EXPECT_EQ(state("chat"), "ready") << "the other user keeps it";
  EXPECT_FALSE(slot_->slot().holder());
}

TEST_F(OneSlotTest, ACallerThatLeavesBeforeTheGrantGetsNothing) {
  ASSERT_TRUE(acquire("image", 1001));
  SlotCall call;
  call.ask = {"chat", "gone", "", 60s, {}};
  call.wait = 100s;
  const auto none = [](const SlotAnswer&) { FAIL() << "it has left"; };
  std::uint64_t number = slot_->acquire(call, none);
  settle();
  ASSERT_EQ(states(), "queued ready down");
  slot_->cancel(number);
  settle();
  EXPECT_EQ(states(), "down ready down");
  EXPECT_FALSE(slot_->slot().holder()) << "the next caller need not wait for it";
  ASSERT_TRUE(release("image", true));
  EXPECT_EQ(states(), "down down down") << "nothing is started for nobody";

  worker_.health = "starting";
  number = slot_->acquire(call, none);
  settle();
  slot_->cancel(number);
  settle();
  EXPECT_EQ(state("chat"), "starting") << "its memory was granted";
}

TEST_F(OneSlotTest, AStackThatIsReleasedWhileItStartsStaysUp) {
  worker_.health = "starting";
  const std::string token = (*ask("chat", "", {}, false, false))->token;
  ASSERT_TRUE(slot_->release(token, false));
  settle();
  EXPECT_EQ(state("chat"), "released");
  const auto again = ask("chat");
  EXPECT_FALSE(*again) << "it is not ready yet";
  worker_.containers["chat"][0].health = "healthy";
  worker_.tell("chat");
  settle();
  ASSERT_TRUE(*again);
  EXPECT_EQ((*again)->kind, Kind::granted);
  EXPECT_EQ(worker_.ups.size(), 1U);
  EXPECT_EQ(slot_->slot().holder()->expires_at, clock_->now() + 60s);
}

TEST_F(OneSlotTest, AHeldWaitLeavesTheQueueWithItsCaller) {
  ASSERT_EQ((*ask("chat"))->kind, Kind::granted);
  SlotCall call;
  call.ask = {"voice", "gone", "", 60s, {}};
  call.wait = 100s;
  call.wait_turn = true;
  const std::uint64_t number = slot_->acquire(call, [](const SlotAnswer&) {});
  settle();
  ASSERT_EQ(slot_->slot().queue().size(), 1U);
  slot_->cancel(number);
  EXPECT_TRUE(slot_->slot().queue().empty());
  call.ask.token = "mine";
  slot_->cancel(slot_->acquire(call, [](const SlotAnswer&) {}));
}

TEST_F(OneSlotTest, AFailedStartTellsWhatTheContainersShowed) {
  worker_.health = "unhealthy";
  const auto failed = ask("chat");
  pass(2s);
  ASSERT_TRUE(*failed);
  EXPECT_EQ((*failed)->kind, Kind::failed);
  EXPECT_EQ((*failed)->health, Health::unhealthy);
  worker_.descriptions[2].services[0].labels.clear();
  stacks_->refresh(1s, [] {});
  settle();
  EXPECT_EQ((*ask("voice"))->health, Health::no_label);
}

TEST_F(OneSlotTest, ADyingContainerEndsTheUse) {
  ASSERT_EQ((*ask("chat"))->kind, Kind::granted);
  worker_.containers["chat"][0].status = "exited";
  worker_.containers["chat"][0].exit_code = 1;
  worker_.tell("chat");
  settle();
  EXPECT_TRUE(slot_->slot().holder()) << "it may come back";
  pass(return_time);
  EXPECT_FALSE(slot_->slot().holder());
}

}  // namespace
}  // namespace sublet::stacks
