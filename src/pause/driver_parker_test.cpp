// SPDX-License-Identifier: Apache-2.0
// Parking whole leases through the simulated driver: the successful ways, and refusals before any change.
#include "pause/driver_parker_test.h"

#include <sys/ptrace.h>

namespace sublet::pause {
namespace {

TEST_F(Parking, ATreeIsParkedAndBroughtBackWithItsBytesRight) {
  const std::vector<ProcessRef> tree{sleeper(), load(), load()};
  const std::string uuid = card();
  const Bytes before = used();
  pid_t helpers[2] = {};
  for (int round = 0; round < 2; ++round) {
    const ParkOutcome parked = park(tree);
    expect(parked, Kind::done);
    EXPECT_EQ(parked.parked, (std::vector{tree[1], tree[2]})) << "parents first, and nobody without CUDA";
#ifndef __SANITIZE_THREAD__  // ThreadSanitizer frees memory of its own meanwhile
    EXPECT_GE(parked.host_bytes, 2 * alloc);
#endif
    EXPECT_GT(parked.took.count(), 0);
    EXPECT_EQ(used(), 2 * residue);
    until([&] { return helpers_of(tree[0]).empty(); });  // it needs none
    for (int i : {0, 1}) {
      if (round == 0) helpers[i] = helper_of(tree[i + 1]);
      else EXPECT_EQ(helper_of(tree[i + 1]), helpers[i]) << "it was kept warm";
    }
    const ParkOutcome back = unpark(tree, {{uuid, 2 * alloc, {}, gpu::ballast_margin}});
    expect(back, Kind::done);
    EXPECT_TRUE(back.parked.empty());
    EXPECT_EQ(used(), before);
  }
  ends_right(tree[1]);
  ends_right(tree[2]);
}

TEST_F(Parking, WhoRunsNeedsNothingToRun) {
  const auto tree = std::vector{load(), sleeper()};
  expect(unpark(tree), Kind::done);
  expect(unpark({}), Kind::done);
  ends_right(tree[0]);
  expect(unpark(tree), Kind::done);
}

// The bytes measured after the lock may exceed the limit of host memory.
TEST_F(Parking, WhoMayNotBeParkedOnceLockedRunsOn) {
  const std::vector<ProcessRef> tree{load(), sleeper(), load()};
  std::vector<ProcessRef> weighed;
  weigh_ = [&](std::vector<ProcessRef> all, const std::function<void(std::string)>& say) {
    for (const ProcessRef process : all) EXPECT_EQ(state(process), "locked");
    weighed = std::move(all);
    say("it holds more than host memory takes");
  };
  expect(park(tree), Kind::undone, "host_memory");
  EXPECT_EQ(weighed, (std::vector{tree[0], tree[2]}));
  EXPECT_EQ(show()["calls"].count("cuCheckpointProcessCheckpoint"), 0);
  for (const ProcessRef process : weighed) EXPECT_EQ(state(process), "running");
  weigh_ = [](const auto&, const auto& say) { say({}); };
  expect(park(tree), Kind::done);
  expect(unpark(tree), Kind::done);
  ends_right(tree[0]);
  ends_right(tree[2]);
}

TEST_F(Parking, BeforeThirteenOnlyWhoseOwnerAnswersForItIsTouched) {
  const std::vector<ProcessRef> tree{load()};
  ctl({"set", "driver_version", "12090"});
  const ParkOutcome refused = park(tree);
  expect(refused, Kind::undone, "owner_must_vouch");
  EXPECT_NE(refused.detail.find("CUDA 12.9"), std::string::npos) << refused.detail;
  program_.devices = 2;
  program_.vouched = true;
  expect(park(tree), Kind::undone, "not_parkable");
  EXPECT_EQ(show()["calls"].count("cuCheckpointProcessLock"), 0);
  program_.devices = 1;
  expect(park(tree), Kind::done);
  expect(unpark(tree), Kind::done);
  ends_right(tree[0]);
}

TEST_F(Parking, WithoutCudaThereIsNothingToPark) {
  expect(park({sleeper()}), Kind::undone, "no_cuda");
  expect(park({}), Kind::undone, "no_cuda");
  const ProcessRef gone = load();
  kill_load(gone);
  expect(park({gone}), Kind::undone, "no_cuda");
}

// If one process cannot be parked, the order is refused and no process is changed.
TEST_F(Parking, OneThatIsStoppedOrTracedRefusesAll) {
  const std::vector<ProcessRef> tree{load(), load()};
  ::kill(tree[1].pid, SIGSTOP);
  until([&] { return stat_of(tree[1].pid)[0] == "T"; });
  const ParkOutcome stopped = park(tree);
  expect(stopped, Kind::undone, "stopped");
  EXPECT_NE(stopped.detail.find(std::to_string(tree[1].pid)), std::string::npos) << stopped.detail;
  ::kill(tree[1].pid, SIGCONT);
  until([&] { return stat_of(tree[1].pid)[0] != "T"; });
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, tree[0].pid, nullptr, nullptr), 0);
  expect(park(tree), Kind::undone, "traced");
  EXPECT_EQ(show()["calls"].count("cuCheckpointProcessLock"), 0);
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, tree[0].pid, nullptr, nullptr), 0);
  ::waitpid(tree[0].pid, nullptr, 0);
  ASSERT_EQ(::ptrace(PTRACE_DETACH, tree[0].pid, nullptr, nullptr), 0);
  expect(park(tree), Kind::done);
  expect(unpark(tree), Kind::done);
  ends_right(tree[0]);
}

TEST_F(Parking, WithoutADriverOrAHelperItIsRefused) {
  const ProcessRef program = load();
  options_.driver = "/nowhere/libcuda.so.1";
  fresh_parker();
  expect(park({program}), Kind::undone, "no_driver");
  expect(unpark({}), Kind::done);  // no order has changed it
  expect(unpark({program}), Kind::unknown, "no_driver");
  options_.helper = "/nowhere/sublet-gpu";
  fresh_parker();
  const ParkOutcome refused = park({program});
  expect(refused, Kind::undone, "helper");
  EXPECT_NE(refused.detail.find("/nowhere/sublet-gpu"), std::string::npos) << refused.detail;
  expect(unpark({}), Kind::done);
  expect(unpark({program}), Kind::unknown, "helper");
  options_.helper = "/bin/true";
  fresh_parker();
  expect(park({program}), Kind::undone, "helper");
}

TEST_F(Parking, AnotherParkerFindsOutHowThingsAre) {
  const std::vector<ProcessRef> tree{load(), load()};
  expect(park(tree), Kind::done);
  fresh_parker();
  EXPECT_EQ(state(tree[0]), "checkpointed") << "whose parker ends stays parked";
  expect(park(tree), Kind::undone, "wrong_state");
  expect(unpark({tree[1], tree[0]}), Kind::done);
  ends_right(tree[0]);
  ends_right(tree[1]);
}

TEST_F(Parking, WhoComesWhileTheOthersAreLockedIsParkedToo) {
  const ProcessRef first = load(), second = load();
  int asked = 0;
  auto later = std::make_shared<std::optional<ParkOutcome>>();
  const auto list = [&] { return ++asked == 1 ? std::vector{first} : std::vector{second, first}; };
  parker_->park(lease, {}, give_up_, list, freely(), weigh_, into(later));
  EXPECT_TRUE(parker_->busy(lease));
  expect(wait(later), Kind::done);
  EXPECT_EQ((*later)->parked, (std::vector{first, second}));
  EXPECT_EQ(asked, 3) << "the last time nobody new was there";
  EXPECT_EQ(touched_, (std::vector<std::vector<ProcessRef>>{{first}, {first, second}})) << "each before it is locked";
  expect(unpark({}), Kind::done);
  ends_right(first);
  ends_right(second);
}

TEST_F(Parking, WhoMultipliesFasterThanTheyAreLockedRunsOn) {
  std::vector<ProcessRef> tree, all{load(), load(), load(), load()};
  auto later = std::make_shared<std::optional<ParkOutcome>>();
  const auto list = [&] {
    if (tree.size() < all.size()) tree.push_back(all[tree.size()]);
    return tree;
  };
  parker_->park(lease, {}, give_up_, list, freely(), weigh_, into(later));
  expect(wait(later), Kind::undone, "tree_changing");
  for (const ProcessRef process : all) ends_right(process);
}

TEST_F(Parking, NobodyIsLockedBeforeThatIsAllowed) {
  const std::vector<ProcessRef> tree{load(), sleeper()};
  std::function<void(bool)> answer;
  const auto ask = [&](const std::vector<ProcessRef>& all, std::function<void(bool)> may) {
    EXPECT_EQ(all, std::vector{tree[0]}) << "nobody without CUDA";
    answer = std::move(may);
  };
  const auto begin = [&] {
    auto later = std::make_shared<std::optional<ParkOutcome>>();
    parker_->park(
        lease, {}, give_up_, [tree] { return tree; }, ask, weigh_, into(later));
    until([&] { return answer != nullptr; });
    EXPECT_EQ(show()["calls"].count("cuCheckpointProcessLock"), 0);
    return later;
  };
  const Later refused = begin();
  std::exchange(answer, nullptr)(false);
  expect(wait(refused), Kind::undone, "withdrawn");
  EXPECT_EQ(show()["calls"].count("cuCheckpointProcessLock"), 0);
  const Later allowed = begin();
  answer(true);
  expect(wait(allowed), Kind::done);
  expect(unpark({}), Kind::done);
  ends_right(tree[0]);
}

// The processes are locked meanwhile, for as long as the disk takes.
TEST_F(Parking, WhoIsNotWeighedInTimeRunsOn) {
  said_within_ = std::chrono::milliseconds(100);
  fresh_parker();
  const std::vector<ProcessRef> tree{load(), load()};
  std::function<void(std::string)> late;
  weigh_ = [&](const auto&, std::function<void(std::string)> say) {
    for (const ProcessRef process : tree) EXPECT_EQ(state(process), "locked");
    late = std::move(say);
  };
  const ParkOutcome outcome = park(tree);
  expect(outcome, Kind::undone, "measure_timeout");
  EXPECT_EQ(outcome.detail, "the memory of the locked processes was not measured and stored within 100 ms");
  for (const ProcessRef process : tree) EXPECT_EQ(state(process), "running");
  late({});  // no order waits for this answer any more
  until([&] { return !parker_->busy(lease); });
  EXPECT_EQ(show()["calls"].count("cuCheckpointProcessCheckpoint"), 0);
  weigh_ = [](const auto&, const auto& say) { say({}); };
  expect(park(tree), Kind::done);
  expect(unpark(tree), Kind::done);
  for (const ProcessRef process : tree) ends_right(process);
}

TEST_F(Parking, WhatIsNotStoredInTimeLocksNobody) {
  said_within_ = std::chrono::milliseconds(100);
  fresh_parker();
  const ProcessRef program = load();
  std::function<void(bool)> late;
  const auto later = std::make_shared<std::optional<ParkOutcome>>();
  parker_->park(
      lease, {}, give_up_, [&] { return std::vector{program}; },
      [&](const auto&, std::function<void(bool)> may) { late = std::move(may); }, weigh_, into(later));
  expect(wait(later), Kind::undone, "measure_timeout");
  late(true);
  EXPECT_EQ(show()["calls"].count("cuCheckpointProcessLock"), 0);
  ends_right(program);
}

// A process that may not be traced was not changed, nor was a process that came since.
TEST_F(Parking, WhatCouldNotBeParkedNeedsNobodyToComeBackWhoeverJoinsIt) {
  const ProcessRef program = load();
  options_.driver = "/nowhere/libcuda.so.1";
  fresh_parker();
  expect(park({program}), Kind::undone, "no_driver");
  EXPECT_TRUE(touched_.empty());
  expect(unpark({}), Kind::done);
  ends_right(program);
}

TEST_F(Parking, AListThatThrowsIsAnOutcome) {
  const ProcessRef program = load();
  int asked = 0;
  auto later = std::make_shared<std::optional<ParkOutcome>>();
  const auto list = [&] {
    if (++asked > 1) throw std::runtime_error("no list today");
    return std::vector{program};
  };
  parker_->park(lease, {}, give_up_, list, freely(), weigh_, into(later));
  expect(wait(later), Kind::unknown, "internal");
  EXPECT_NE((*later)->detail.find("no list today"), std::string::npos);
  EXPECT_EQ(state(program), "locked");
  expect(unpark({}), Kind::done);
  ends_right(program);
}

TEST_F(Parking, ForgettingUnlocksWhoWaitsAndEndsTheHelpers) {
  const ProcessRef program = load();
  expect(park({program}), Kind::done);
  expect(unpark({program}), Kind::done);
  EXPECT_EQ(helpers_of(program).size(), 1);
  parker_->forget(lease);
  until([&] { return helpers_of(program).empty(); });

  const ProcessRef waits = load();
  fault("checkpoint-hang", waits);
  const Later nobody_told = begin_park({waits});
  until([&] { return hits("checkpoint-hang") > 0; });
  EXPECT_EQ(state(waits), "locked");
  ctl({"set", "checkpoint_us", "1"});
  parker_->forget(lease);
  EXPECT_FALSE(parker_->busy(lease));
  ctl({"clear"});
  until([&] { return state(waits) == "checkpointed" && helpers_of(waits).empty(); });
  EXPECT_FALSE(nobody_told->has_value());
  expect(unpark({waits}), Kind::done);
  ends_right(waits);
  ends_right(program);
}

TEST_F(Parking, LeasesAreParkedBesideEachOther) {
  const std::vector<ProcessRef> programs{load(), load(), load()};
  std::vector<Later> later;
  for (std::size_t i = 0; i < programs.size(); ++i) later.push_back(begin_park({programs[i]}, LeaseId{i + 1}));
  for (std::size_t i = 0; i < programs.size(); ++i) expect(wait(later[i], LeaseId{i + 1}), Kind::done);
  EXPECT_EQ(used(), 3 * residue);
  for (std::size_t i = 0; i < programs.size(); ++i) {
    expect(wait(begin_unpark({programs[i]}, {}, LeaseId{i + 1}), LeaseId{i + 1}), Kind::done);
    ends_right(programs[i]);
  }
}

}  // namespace
}  // namespace sublet::pause
