// SPDX-License-Identifier: Apache-2.0
// Parked programs are kept from the swap device, and running programs are not: cases that the seeded simulation
// (tests/sim) has found.
#include "engine/engine_orders_test.h"

#include <algorithm>
#include <set>

namespace sublet::engine {
namespace {

// A host with a swap device. All groups could be kept from swap; the groups in `stopped` are.
class SwappingHost final : public machine::Host {
 public:
  explicit SwappingHost(const std::set<std::int32_t>& stopped) : stopped_(stopped) {}
  core::HostMemory memory(std::span<const ProcessRef> processes,
                          const std::optional<proc::SwapStopper>& by) const override {
    const bool kept = !processes.empty() && std::ranges::all_of(processes, [&](ProcessRef process) {
      return stopped_.contains(process.pid) || (by && by->root);
    });
    return {.available = 64 * GiB, .headroom = {}, .may_swap = !kept};
  }
  std::vector<std::string> swap_groups(std::span<const ProcessRef> processes) const override {
    std::vector<std::string> groups;
    for (const ProcessRef process : processes) groups.push_back(together ? "session" : std::to_string(process.pid));
    return groups;
  }
  machine::HostUse use(std::span<const ProcessRef>) const override { return {}; }
  Status lock_card(const std::string&) override { return {}; }
  void remove_exit_record(const std::string&) override {}
  void sweep_exit_records(const std::string&, const std::function<bool(LeaseId)>&) override {}

  bool together = false;  // all processes are in one group

 private:
  const std::set<std::int32_t>& stopped_;
};

// An actor that is there when the test says so.
class SomeActor final : public machine::Actor {
 public:
  void start(std::function<void()> came) override { came_ = std::move(came); }
  void stop() override {}
  const std::string& problem() const override { return none_; }
  std::string hint() const override { return {}; }
  bool ready() const override { return ready_; }
  const actor::Reply& introduction() const override { return said_; }
  void fetch(actor::Order, std::span<const int>, Fetched done) override { done({}, Fd()); }
  void come() { ready_ = true, came_(); }
  void lose() { ready_ = false; }

 private:
  std::function<void()> came_;
  bool ready_ = false;
  std::string none_;
  actor::Reply said_;
};

// A program of two processes. Records which are kept from swap; the test answers.
class SomePrograms final : public machine::Programs {
 public:
  explicit SomePrograms(std::set<std::int32_t>& its) : stopped(its) {}
  Status open(Events) override { return {}; }
  void introduce_all() override {}
  void follow(const core::Lease&, bool) override {}
  void book(const core::Lease&) override {}
  void forget(LeaseId) override {}
  void forget_others(const std::function<bool(LeaseId)>&) override {}
  void scan() override { scanned = true; }
  const proc::Member* member(ProcessRef) const override { return nullptr; }
  std::vector<ProcessRef> tree(LeaseId) const override { return scanned ? all : std::vector<ProcessRef>(); }
  bool lives(ProcessRef process) const override { return process.pid != dead; }
  bool inhabited(LeaseId) const override { return true; }
  std::string name(ProcessRef) const override { return {}; }
  bool signal(LeaseId, int, std::uint32_t) override { return true; }
  bool keeper_alive(LeaseId) const override { return true; }
  void wake_keeper(LeaseId, std::uint32_t) override {}
  void tell(LeaseId, ProcessRef, int, std::function<void(machine::SignalResult)> done) override { done({}); }
  void keep_from_swap(LeaseId, ProcessRef process, bool keep, std::function<void(std::string)> done) override {
    if (!keep) return kept.clear();
    kept.push_back(process.pid);
    answers.push_back(std::move(done));
  }
  void all_are_kept() override { named = kept.size(); }
  void limit_cpu(LeaseId, machine::CpuCause, int, std::function<void(const machine::CpuLimited&)> done) override {
    done({});
  }
  bool can_signal(LeaseId) const override { return true; }
  std::string why_not_signalled(LeaseId) const override { return {}; }
  Result<Identified> identify(std::int32_t, std::optional<std::uint32_t>, std::int32_t) const override {
    return unavailable("nobody asks");
  }
  Status check_pid_namespace(std::int32_t) const override { return {}; }
  Result<proc::CgroupRef> check_cgroup(const std::string&) const override { return unavailable("nobody asks"); }
  Result<proc::GroupState> look_at_group(const std::string&) const override { return group; }
  const proc::ProcRoot& root() const override { std::abort(); }

  // Answers all waiting orders: success, or failure with `why_not`.
  void answer(const std::string& why_not = {}) {
    if (why_not.empty()) stopped.insert(kept.begin(), kept.end());
    for (auto& done : std::exchange(answers, {})) done(why_not);
  }
  std::set<std::int32_t>& stopped;
  std::int32_t dead = 0;
  bool scanned = false;
  proc::GroupState group;
  std::vector<ProcessRef> all{{4321, 5}, {4322, 6}};
  std::vector<std::int32_t> kept;
  std::optional<std::size_t> named;  // number of kept processes when the last order said that these are all
  std::vector<std::function<void(std::string)>> answers;
};

struct Parts {
  std::set<std::int32_t> stopped_;
  SomeActor* actor_ = new SomeActor;  // owned by the machine
  SomePrograms* programs_ = new SomePrograms(stopped_);
  SwappingHost* host_ = new SwappingHost(stopped_);
};

class Swap : protected Parts, public EngineOrders {
 protected:
  Swap()
      : EngineOrders([this](Machine& machine) {
          machine.host = std::unique_ptr<machine::Host>(host_);
          machine.actor = std::unique_ptr<machine::Actor>(actor_);
          machine.programs = std::unique_ptr<machine::Programs>(programs_);
        }) {}
};

TEST_F(Swap, WithoutAnActorNobodyIsAsked) {
  run();
  EXPECT_TRUE(engine_->observer().host_memory(engine_->find(id_)).may_swap)
      << "there never was one, and it had all rights";
  actor_->come();
  EXPECT_FALSE(engine_->observer().host_memory(engine_->find(id_)).may_swap);
}

// The group may be kept for another lease already. The resume of that lease must not end it.
TEST_F(Swap, EveryProcessIsKeptForItsOwnLease) {
  actor_->come();
  run();
  stopped_ = {4321, 4322};
  pause();
  settle();
  EXPECT_EQ(programs_->kept, std::vector<std::int32_t>{4322});
  programs_->answer();
  EXPECT_EQ(programs_->kept, (std::vector<std::int32_t>{4322, 4321}));
  EXPECT_TRUE(parker_->orders.empty());
  programs_->answer("the actor may not, and its owner has it kept");
  EXPECT_EQ(parker_->orders, std::vector<std::string>{"park"});
}

TEST_F(Swap, TwoReadingsEndALeaseOfAGroupUnlessTheKernelItselfSaysThatItIsEmpty) {
  for (const bool certain : {false, true}) {
    core::Submit wish;
    wish.lease.uid = 1000, wish.lease.user = wish.lease.tenant = "ana", wish.lease.consumer = "job";
    wish.lease.vram = GiB;
    wish.lease.owner = {.kind = core::OwnerKind::group, .inode = 5, .cgroup = "/sys/fs/cgroup/job_7"};
    LeaseId id;
    ASSERT_TRUE(engine_->request(wish, {}, [&](const core::Lease& lease) {
      id = lease.id;
      return Answered{201, "{}"};
    }));
    programs_->group = {5, false, certain};
    engine_->observer().watch_groups();
    if (!certain) {
      engine_->observer().watch_groups(true);
      EXPECT_FALSE(engine_->find(id)->ended()) << "its processes may move just now";
      programs_->group = {5, true};
      engine_->observer().watch_groups(true);
      programs_->group = {5, false, false};
      engine_->observer().watch_groups(true), engine_->observer().watch_groups();
      EXPECT_FALSE(engine_->find(id)->ended()) << "they were seen in between";
      engine_->observer().watch_groups(true);
    }
    EXPECT_TRUE(engine_->find(id)->ended());
  }
}

TEST_F(Swap, OfThoseInOneGroupOneIsNamed) {
  actor_->come();
  run();
  host_->together = true;
  pause();
  settle();
  EXPECT_EQ(programs_->kept, std::vector<std::int32_t>{4322});
  stopped_ = {4321};
  programs_->answer();
  EXPECT_EQ(programs_->kept, std::vector<std::int32_t>{4322});
  EXPECT_EQ(parker_->orders, std::vector<std::string>{"park"});
}

// The process ended just then, which says nothing about the others.
TEST_F(Swap, WhereOneOfAGroupIsNotKeptTheNextIsNamed) {
  actor_->come();
  run();
  host_->together = true;
  pause();
  settle();
  programs_->dead = 4322;
  programs_->answer("the process has ended");
  EXPECT_EQ(programs_->kept, (std::vector<std::int32_t>{4322, 4321}));
}

// A child in a group of its own, forked meanwhile.
TEST_F(Swap, WhoComesWhileTheOthersAreKeptIsNotParked) {
  actor_->come();
  run();
  pause();
  settle();
  programs_->answer();
  programs_->all.push_back({4323, 7});
  programs_->answer();
  for (int commit = 0; commit < 2; ++commit) settle();
  EXPECT_EQ(parker_->orders, std::vector<std::string>{"unpark"});
  EXPECT_EQ(state(), LeaseState::resuming);
}

TEST_F(Swap, AnActorThatComesLaterIsToldOfAllThatAreParked) {
  actor_->come();
  run();
  pause();
  settle();
  for (int process = 0; process < 2; ++process) programs_->answer();
  programs_->kept.clear();
  stopped_ = {4321, 4322};
  programs_->scanned = false;  // the daemon was started again, and has not read the processes yet
  programs_->named.reset();
  actor_->come();
  for (int process = 0; process < 2; ++process) {
    EXPECT_FALSE(programs_->named) << "that is not all";
    programs_->answer();
  }
  EXPECT_EQ(programs_->kept, (std::vector<std::int32_t>{4322, 4321}));
  EXPECT_EQ(programs_->named, 2u);
}

// The next actor must not release the groups of the last one before it knows the paused leases.
TEST_F(Swap, WhatTheOneBeforeWasToldIsNotAllForTheNext) {
  actor_->come();
  EXPECT_EQ(programs_->named, 0u);
  run();
  pause();
  settle();
  for (int process = 0; process < 2; ++process) programs_->answer();
  stopped_ = {4321, 4322};
  programs_->named.reset();
  actor_->come();
  const auto told_the_first = std::exchange(programs_->answers, {});
  actor_->come();
  const auto told_the_second = std::exchange(programs_->answers, {});
  told_the_first.at(0)("the actor is not there");
  std::exchange(programs_->answers, {}).at(0)({});
  EXPECT_FALSE(programs_->named);
  told_the_second.at(0)({});
  std::exchange(programs_->answers, {}).at(0)({});
  EXPECT_TRUE(programs_->named);
}

// The actor that should release the group was lost just then. The next actor finds no paused lease.
TEST_F(Swap, WhoCameBackWithoutAnActorIsLetBeByTheNext) {
  actor_->come();
  run();
  pause();
  settle();
  for (int process = 0; process < 2; ++process) programs_->answer();
  pause::ParkOutcome parked{.kind = pause::ParkOutcome::Kind::done, .parked = {{4321, 5}, {4322, 6}}};
  parked.host_bytes = Bytes{};
  parker_->waiting.extract(id_).mapped()(parked);
  settle();
  for (int proof = 0; proof < 2; ++proof) probe_->tell(), settle();
  ASSERT_EQ(state(), LeaseState::paused);
  actor_->lose();
  programs_->named.reset();
  request(core::Resume{id_, 0});
  settle();
  parker_->answer(id_);
  settle();
  ASSERT_EQ(state(), LeaseState::active);
  EXPECT_FALSE(programs_->named);
  actor_->come();
  EXPECT_EQ(programs_->named, 0u);
}

// Without its store the daemon does not know the paused leases. Otherwise a start with a broken disk would release all
// groups.
TEST_F(Swap, NobodyIsLetBeWhileItIsUnknownWhoIsAway) {
  store_.fail_open(unavailable("the disk does not answer"));
  store_.fail_commit(1, FaultyStore::Fate::lost, unavailable("the disk does not answer"));
  run();
  ASSERT_NE(engine_->store_problem(), "");
  actor_->come();
  EXPECT_FALSE(programs_->named);
}

TEST_F(Swap, AStoreThatIsReadAnewNamesAllWhoAreAway) {
  actor_->come();
  run();
  programs_->named.reset();
  store_.fail_commit(1, FaultyStore::Fate::lost, unavailable("the disk is full"));
  pause();
  settle();
  ASSERT_EQ(engine_->store_problem(), "");
  EXPECT_TRUE(programs_->named);
}

// The program reports it by itself, long after its resume order.
TEST_F(Swap, WhoGoesOnLateIsLetBeToo) {
  actor_->come();
  run();
  cooperate();
  pause();
  settle();
  for (int process = 0; process < 2; ++process) programs_->answer();
  cooperation_->waits(
      {.kind = pause::ParkOutcome::Kind::unknown, .code = core::ObstacleCode::late, .detail = "not in time"});
  settle();
  ASSERT_EQ(state(), LeaseState::resuming);
  EXPECT_FALSE(programs_->kept.empty());
  cooperation_->events.runs_late(id_);
  EXPECT_FALSE(programs_->kept.empty()) << "until that is durable";
  settle();
  EXPECT_EQ(state(), LeaseState::active);
  EXPECT_TRUE(programs_->kept.empty());
}

// The lease resumed while its processes were kept one after the other.
TEST_F(Swap, NobodyIsKeptOnceItRunsAgain) {
  actor_->come();
  run();
  pause();
  settle();
  for (int process = 0; process < 2; ++process) programs_->answer();
  pause::ParkOutcome parked{.kind = pause::ParkOutcome::Kind::done, .parked = {{4321, 5}, {4322, 6}}};
  parked.host_bytes = Bytes{};
  parker_->waiting.extract(id_).mapped()(parked);
  settle();
  for (int proof = 0; proof < 2; ++proof) probe_->tell(), settle();
  ASSERT_EQ(state(), LeaseState::paused);
  actor_->come();
  request(core::Resume{id_, 0});
  settle();
  parker_->answer(id_);
  settle();
  ASSERT_EQ(state(), LeaseState::active);
  programs_->answer();
  EXPECT_TRUE(programs_->kept.empty());
}

}  // namespace
}  // namespace sublet::engine
