// SPDX-License-Identifier: Apache-2.0
// Sessions whose programs use no GPU, and that wait for their memory again.
#include "sessions/sessions_test.h"

namespace sublet::sessions {
namespace {

class RestTest : public SessionsTest {
 protected:
  // Its program uses no GPU, and is this test.
  std::uint64_t rests(Bytes vram, std::vector<std::string> checkpoint = {}) {
    const std::uint64_t number = open(1000s, vram, std::move(checkpoint));
    has_process(number);
    EXPECT_TRUE(sessions_->end_idle(at(number).progress.lease, "it did nothing for 1 h"));
    settle();
    EXPECT_EQ(state(number), State::resting) << at(number).progress.why;
    return number;
  }
  // Others took its memory meanwhile.
  std::uint64_t waits_again(std::vector<std::string> checkpoint = {}) {
    const std::uint64_t number = rests(20 * GiB, std::move(checkpoint));
    pass(2s, 1s);
    plain_lease(20 * GiB);
    EXPECT_TRUE(sessions_->touch(at(number)));
    pass(2s, 1s);
    EXPECT_EQ(state(number), State::queued);
    EXPECT_TRUE(lease(number).resize);
    return number;
  }
};

TEST_F(RestTest, IsNotEndedWhileItWaitsForItsMemoryAgain) {
  const std::uint64_t number = waits_again();
  const LeaseId id = at(number).progress.lease;
  EXPECT_TRUE(sessions_->rests(id));
  EXPECT_TRUE(sessions_->end_idle(id, "it did nothing for 1 h"));
  pass(10s);
  EXPECT_EQ(state(number), State::queued) << at(number).progress.why;
  EXPECT_TRUE(lease(number).resize) << "it keeps its place";
}

TEST_F(RestTest, ARefusalForNowEndsNothing) {
  const std::uint64_t number = open(1000s, 256 * MiB);
  has_process(number);
  cooperates(number);
  const LeaseId id = at(number).progress.lease;
  decide(core::Pause{id, 0, {core::PauseCauseKind::owner_request}, engine_->observer().host_memory(nullptr)});
  parks(number);
  ASSERT_TRUE(sessions_->resume(at(number)));
  settle();
  clock_->advance(1s);  // since the last reading
  decide(core::AttemptEvent{id, core::Unparked{}});
  ASSERT_EQ(state(number), State::active);
  EXPECT_TRUE(sessions_->rest_idle(id, "it did nothing for 1 h")) << "it is not paused instead";
  EXPECT_TRUE(sessions_->end_idle(id, "it did nothing for 1 h"));
  EXPECT_EQ(state(number), State::active) << "its memory is not measured yet";
  pass(2s, 1s);
  EXPECT_TRUE(sessions_->end_idle(id, "it did nothing for 1 h"));
  EXPECT_EQ(state(number), State::resting);
}

TEST_F(RestTest, ItsCheckpointCommandRunsWhileItWaitsForItsMemory) {
  const std::uint64_t number = waits_again({"save"});
  ASSERT_TRUE(sessions_->checkpoint(at(number)));
  settle();
  ASSERT_EQ(keepers_.orders.size(), 1u);
  ASSERT_TRUE(sessions_->report(at(number), {.checkpoint = 1, .locator = "/data/1"}));
  pass(2s, 1s);
  EXPECT_FALSE(at(number).progress.checkpoint.running);
  EXPECT_EQ(state(number), State::queued);
}

TEST_F(RestTest, ACheckpointIsMadeAgainAndAgain) {
  Session session = fresh(1000s);
  session.request.checkpoint = {"save"};
  session.request.checkpoint_every = 30s;
  const std::uint64_t number = session.number;
  submit(session);
  has_process(number);
  ASSERT_TRUE(sessions_->end_idle(at(number).progress.lease, "it did nothing for 1 h"));
  ASSERT_EQ(state(number), State::resting);
  pass(35s);
  EXPECT_EQ(at(number).progress.checkpoint.number, 1u);
}

TEST_F(RestTest, IsAWaiterForTheLimitOfContinuousActivity) {
  options_.max_continuous = 60s;
  restart();
  const std::uint64_t number = rests(20 * GiB);
  pass(2s, 1s);
  const std::uint64_t busy = open(1000s, 20 * GiB);
  activity_.state = Activity::State::busy;
  ASSERT_TRUE(sessions_->touch(at(number)));
  pass(100s);
  EXPECT_EQ(at(busy).progress.end, End::expired) << "it has no pause method";
  EXPECT_EQ(state(number), State::active);
}

}  // namespace
}  // namespace sublet::sessions
