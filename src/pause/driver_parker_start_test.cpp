// SPDX-License-Identifier: Apache-2.0
// Parking through helpers that another process starts, as the actor does for other users' processes.
#include "pause/driver_parker_test.h"
#include "proc/spawn.h"

#include <sys/socket.h>

namespace sublet::pause {
namespace {

class StartedElsewhere : public Parking {
 protected:
  void SetUp() override {
    Parking::SetUp();
    if (IsSkipped()) return;
    options_.start = [this](LeaseId of, ProcessRef process, bool to_bring_back, machine::HelperStarted done) {
      EXPECT_EQ(of, lease);
      asked_.emplace_back(process, to_bring_back);
      if (!refusals_.empty()) {
        Error refusal = refusals_.front();
        refusals_.erase(refusals_.begin());
        return boost::asio::post(io_, [done, refusal] { done(refusal); });
      }
      if (living() >= at_most_) return boost::asio::post(io_, [done] { done(Error{Code::InUse, "too many", {}}); });
      if (gone_ == process) return boost::asio::post(io_, [done] { done(not_found("it has ended")); });
      if (denied_ == process) return done(denied("its rights are others'"));
      if (silent_) return;
      boost::asio::post(io_, [this, process, done] { done(start_one(process)); });
    };
    fresh_parker();
  }
  void TearDown() override {
    Parking::TearDown();
    for (const pid_t helper : started_) finish(helper);
  }
  Result<Fd> start_one(ProcessRef process) {
    auto helper = proc::spawn_helper(
        {.program = build("bin/sublet-gpu"),
         .arguments = {"checkpoint", "--fd", "3", "--pid", std::to_string(process.pid), "--start",
                       std::to_string(process.start_ticks), "--driver", build("lib/simgpu/libcuda.so.1")},
         .socket_type = SOCK_STREAM,
         .bare = false});
    EXPECT_TRUE(helper);
    started_.push_back(helper->pid);
    return std::move(helper->socket);
  }

  // Returns how many of the started helpers still live.
  std::size_t living() {
    std::erase_if(started_, [](pid_t helper) { return ::waitpid(helper, nullptr, WNOHANG) == helper; });
    return started_.size();
  }

  std::vector<std::pair<ProcessRef, bool>> asked_;
  std::size_t at_most_ = 100;
  std::vector<Error> refusals_;  // answers to the next starts
  ProcessRef denied_, gone_;
  bool silent_ = false;
  std::vector<pid_t> started_;
};

TEST_F(StartedElsewhere, ParksAndBringsBack) {
  const ProcessRef one = load(), two = load();
  expect(park({one, two}), Kind::done);
  EXPECT_EQ(state(one), "checkpointed");
  until([&] { return living() == 0; });  // a parked process needs no helper
  expect(unpark({one, two}), Kind::done);
  until([&] { return living() == 0; });
  ASSERT_EQ(asked_.size(), 4u);
  EXPECT_FALSE(asked_[0].second || asked_[1].second);
  EXPECT_TRUE(asked_[2].second && asked_[3].second);
  ends_right(one);
  ends_right(two);
}

// The number of helpers is limited, and a tree may be larger.
TEST_F(StartedElsewhere, ThereAreNoMoreThanAreNeeded) {
  const ProcessRef one = load(), two = load();
  std::vector<ProcessRef> tree{one, two};
  for (int i = 0; i < 60; ++i) tree.push_back(sleeper());
  at_most_ = 24;
  expect(park(tree), Kind::done);
  EXPECT_EQ(state(one), "checkpointed");
  until([&] { return living() == 0; });
  fresh_parker();  // a new parker does not know the members
  expect(unpark(tree), Kind::done);
  EXPECT_EQ(state(two), "running");
  until([&] { return living() == 0; });
  ends_right(one);
  ends_right(two);
}

TEST_F(StartedElsewhere, WhenItIsRefusedThereAreNoneLeft) {
  const std::vector<ProcessRef> tree{load(), load()};
  denied_ = tree[1];
  expect(park(tree), Kind::undone, "no_right");
  until([&] { return living() == 0; });
  ends_right(tree[0]);
  ends_right(tree[1]);
}

TEST_F(StartedElsewhere, SaysWhenItIsToBringBack) {
  const ProcessRef one = load();
  expect(park({one}), Kind::done);
  fresh_parker();
  expect(unpark({one}), Kind::done);
  ASSERT_EQ(asked_.size(), 2u);
  EXPECT_TRUE(asked_[1].second);
  ends_right(one);
}

TEST_F(StartedElsewhere, WaitsForAnEarlierOneToEnd) {
  const ProcessRef one = load();
  refusals_ = {Error{Code::InUse, "busy", {}}, Error{Code::InUse, "busy", {}}};
  expect(park({one}), Kind::done);
  EXPECT_EQ(asked_.size(), 3u);
  expect(unpark({one}), Kind::done);
  ends_right(one);
}

TEST_F(StartedElsewhere, TriesAgainOnceWhenNoneCame) {
  const ProcessRef one = load();
  refusals_ = {unavailable("the actor is not there")};
  expect(park({one}), Kind::done);
  expect(unpark({one}), Kind::done);
  refusals_ = {unavailable("the actor is not there"), unavailable("the actor is not there")};
  fresh_parker();
  const ParkOutcome outcome = park({one});
  expect(outcome, Kind::undone, "helper");
  EXPECT_EQ(outcome.detail, "the actor is not there");
  refusals_.assign(9, unavailable("the actor is not there"));
  expect(unpark({}), Kind::done);
  EXPECT_EQ(refusals_.size(), 9u) << "nothing has touched it, so nobody needs to look";
  ends_right(one);
}

TEST_F(StartedElsewhere, WhoHasOtherRightsPreventsIt) {
  const ProcessRef hers = load(), roots = load();
  denied_ = roots;
  const ParkOutcome outcome = park({hers, roots});
  expect(outcome, Kind::undone, "no_right");
  EXPECT_EQ(outcome.detail, "its rights are others'");
  EXPECT_EQ(std::ranges::count(asked_, std::pair{roots, false}), 2) << "once more, for it could have been for a moment";
  EXPECT_TRUE(touched_.empty()) << "neither was touched";
  ends_right(hers);
  ends_right(roots);
}

// For a moment a process has the rights of a set-user-ID program, which then ends.
TEST_F(StartedElsewhere, WhoHasOtherRightsForAMomentPreventsNothing) {
  const ProcessRef hers = load(), roots = load();
  refusals_ = {denied("its rights are others'")};
  expect(park({hers}), Kind::done);
  expect(unpark({hers}), Kind::done);
  denied_ = roots;
  const Later later = begin_park({hers, roots});
  until([&] { return std::ranges::count(asked_, std::pair{roots, false}) == 1; });
  kill_load(roots);
  denied_ = {}, gone_ = roots;
  expect(wait(later), Kind::done);
  EXPECT_EQ(state(hers), "checkpointed");
  expect(unpark({hers}), Kind::done);
  ends_right(hers);
}

// A process that may not be asked does not count as running: it may have been parked before its rights changed.
TEST_F(StartedElsewhere, WhoMayNotBeLookedIntoAnyMoreDoesNotCountAsRunning) {
  const ProcessRef one = load(), other = load();
  expect(park({one, other}), Kind::done);
  fresh_parker();
  denied_ = other;
  const ParkOutcome outcome = unpark({one, other});
  expect(outcome, Kind::unknown, "no_right");
  EXPECT_EQ(outcome.detail, "its rights are others'");
  EXPECT_EQ(state(one), "running") << "the others need not wait for it";
  EXPECT_EQ(state(other), "checkpointed");
  denied_ = {};
  expect(unpark({one, other}), Kind::done);
  ends_right(one);
  ends_right(other);
}

TEST_F(StartedElsewhere, WhoHasEndedNeedsNone) {
  const ProcessRef one = load(), two = load();
  gone_ = two;
  expect(park({one, two}), Kind::done);  // the second process ended since it was listed
  EXPECT_EQ(state(one), "checkpointed");
  fresh_parker();
  expect(unpark({one, two}), Kind::done);
  EXPECT_EQ(state(one), "running");
  ends_right(one);
  ends_right(two);
}

TEST_F(StartedElsewhere, ThatNeverComesKeepsNobodyFromEnding) {
  const ProcessRef one = load();
  silent_ = true;
  const Later later = begin_park({one});
  until([&] { return !asked_.empty(); });
  EXPECT_TRUE(parker_->busy(lease));
  parker_.reset();
  io_.restart();
  io_.run_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(later->has_value());
  ends_right(one);
}

}  // namespace
}  // namespace sublet::pause
