// SPDX-License-Identifier: Apache-2.0
// The capability with an engine, one card of 24 GiB, programs and a clock of the test.
#pragma once

#include "guard/guard.h"

#include "machine/test_probe.h"
#include "store/faulty_store.h"
#include "store/memory_store.h"

#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>

#include <csignal>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sublet::guard {

using namespace std::chrono_literals;

// A card with these bytes of each pid; the test sends its snapshots.
class CardInUse final : public machine::TestProbe {
 public:
  using TestProbe::TestProbe;
  void take_now() override { ++asked; }
  void tell() {
    gpu::GpuDevice shown = card();
    for (const auto& [pid, bytes] : used) {
      shown.used += bytes;
      shown.processes.push_back({.process = {pid, 1}, .used = bytes});
    }
    send(std::move(shown));
  }
  std::map<std::int32_t, Bytes> used;
  int asked = 0;  // how often a reading was requested
};

// Each lease has one process, with a keeper. Keeps the signals.
class KeptPrograms final : public machine::Programs {
 public:
  Status open(Events events) override { return events_ = std::move(events), Status(); }
  void introduce_all() override {}
  void follow(const core::Lease& lease, bool) override {
    if (lease.owner.process) members[lease.owner.process.pid] = {lease.owner.process, lease.id};
  }
  void book(const core::Lease&) override {}
  void forget(LeaseId lease) override {
    std::erase_if(members, [lease](const auto& entry) { return entry.second.lease == lease; });
  }
  void forget_others(const std::function<bool(LeaseId)>&) override {}
  void scan() override {}
  const proc::Member* member(ProcessRef process) const override {
    const auto found = members.find(process.pid);
    return found == members.end() ? nullptr : &found->second;
  }
  std::vector<ProcessRef> tree(LeaseId) const override { return {}; }
  bool lives(ProcessRef) const override { return others_live; }
  bool inhabited(LeaseId lease) const override {
    return std::ranges::any_of(members, [lease](const auto& entry) { return entry.second.lease == lease; });
  }
  std::string name(ProcessRef) const override { return "other"; }
  bool signal(LeaseId, int signal, std::uint32_t) override { return signals.push_back(signal), true; }
  bool keeper_alive(LeaseId) const override { return keepers_live; }
  void wake_keeper(LeaseId, std::uint32_t) override { ++woken; }
  void tell(LeaseId, ProcessRef, int, std::function<void(machine::SignalResult)> done) override { done({}); }
  void keep_from_swap(LeaseId, ProcessRef, bool, std::function<void(std::string)>) override {}
  void all_are_kept() override {}
  void limit_cpu(LeaseId, machine::CpuCause, int percent,
                 std::function<void(const machine::CpuLimited&)> done) override {
    cpu_limits.push_back(percent);
    done({});
  }
  bool can_signal(LeaseId) const override { return true; }
  std::string why_not_signalled(LeaseId) const override { return {}; }
  Result<Identified> identify(std::int32_t, std::optional<std::uint32_t>, std::int32_t) const override {
    return unavailable("nobody asks");
  }
  Status check_pid_namespace(std::int32_t) const override { return {}; }
  Result<proc::CgroupRef> check_cgroup(const std::string&) const override { return unavailable("nobody asks"); }
  const proc::ProcRoot& root() const override { std::abort(); }

  // The program has ended by this signal.
  void end(LeaseId lease, int signal) {
    std::erase_if(members, [lease](const auto& entry) { return entry.second.lease == lease; });
    events_.ended({lease, 128 + signal, true});
  }
  std::map<std::int32_t, proc::Member> members;
  std::vector<int> signals;
  std::vector<int> cpu_limits;
  bool keepers_live = false;
  bool others_live = true;  // processes that are in no lease
  int woken = 0;            // keepers that were told to end their programs

 private:
  Events events_;
};

// Keeps the orders. The test answers them.
struct KeptOrders final : machine::Keepers {
  void start(const machine::KeeperOrder& order, Done done) override {
    orders.push_back(order);
    answers.push_back(std::move(done));
  }
  nlohmann::json document(std::size_t i) const { return nlohmann::json::parse(orders.at(i).document); }

  std::vector<machine::KeeperOrder> orders;
  std::vector<Done> answers;
};

// The alarms of the engine, on the clock of the test.
class TestAlarms {
 public:
  explicit TestAlarms(const ManualClock*& clock) : clock_(clock) {}
  std::unique_ptr<machine::Alarm> make() { return std::make_unique<One>(*this); }
  // Rings those that are due.
  void ring() {
    for (auto due = take_due(); due; due = take_due()) due();
  }

 private:
  struct One final : machine::Alarm {
    explicit One(TestAlarms& its_all) : all(its_all) { all.set_.push_back(this); }
    ~One() override { all.set_.remove(this); }
    void set(Duration from_now, std::function<void()> its_ring) override {
      at = all.clock_->now() + from_now;
      ring = std::move(its_ring);
    }
    void cancel() override { ring = nullptr; }
    TestAlarms& all;
    Time at;
    std::function<void()> ring;
  };
  std::function<void()> take_due() {
    for (One* one : set_)
      if (one->ring && one->at <= clock_->now()) return std::exchange(one->ring, nullptr);
    return nullptr;
  }

  const ManualClock*& clock_;
  std::list<One*> set_;
};

class GuardTest : public testing::Test {
 protected:
  GuardTest() {
    engine::MachineOptions real;
    real.actor.socket = "/nonexistent";
    engine::Machine machine = engine::real_machine(io_, real);
    auto clock = std::make_unique<ManualClock>();
    clock_ = clock.get();
    own_clock_ = clock.get();
    machine.clock = std::move(clock);
    machine.alarm = [this] { return alarms_.make(); };
    card_ = new CardInUse(*clock_);
    machine.probe = std::unique_ptr<machine::Probe>(card_);
    programs_ = new KeptPrograms;
    machine.programs = std::unique_ptr<machine::Programs>(programs_);
    engine::Options options;
    options.exit_dir = "/nonexistent/exits";
    options.boot_id = "boot";
    engine_.emplace(io_, store_, std::move(machine), std::move(options));
    Options its;
    its.runs.host = "unix:///run/sublet.sock";
    its.runs.log_dir = "/nonexistent/logs";
    its.soft_cpu = 25;
    guard_.emplace(*engine_, keepers_, its);
    engine_->capabilities().add(*guard_);
    EXPECT_TRUE(engine_->start());
    card_->tell();
    settle();
  }
  ~GuardTest() override { engine_->stop(); }

  void turn() {
    for (int round = 0; round < 5; ++round) {
      io_.restart();
      io_.poll();
    }
  }
  // Until nothing happens any more without time.
  void settle() {
    for (int round = 0; round < 20; ++round) {
      turn();
      memory_.pump();
    }
  }
  // A reading after this time, without a commit.
  void read_after(Duration time) {
    own_clock_->advance(time);
    alarms_.ring();
    card_->tell();
    turn();
  }
  void pass(Duration time) {
    read_after(time);
    settle();
  }
  void request(const core::Fact& fact) {
    const auto done = engine_->request(fact, {}, [this](const core::Lease& lease) {
      id_ = lease.id;
      return engine::Answered{};
    });
    ASSERT_TRUE(done) << done.error().detail;
  }
  // An active lease whose program is this pid.
  LeaseId run(std::int32_t pid, Bytes vram, Limits limits = {}) {
    core::Submit submit;
    submit.held = true;
    submit.lease.uid = 1000;
    submit.lease.user = submit.lease.tenant = "ana";
    submit.lease.consumer = "load";
    submit.lease.vram = vram;
    submit.lease.ceiling = limits.ceiling;
    submit.lease.soft_limit = limits.soft_limit;
    request(submit);
    core::Attach attach{id_, 0, {}, true, {}};
    attach.owner.kind = core::OwnerKind::process;
    attach.owner.process = {pid, 1};
    attach.owner.keeper = {pid + 1, 1};
    request(attach);
    settle();
    return id_;
  }
  const core::Lease& lease(LeaseId id) const { return *engine_->find(id); }

  // The next commit fails, and so does each attempt to open the store until come_back().
  void fail_store() {
    store_.fail_commit(1, store::FaultyStore::Fate::lost, unavailable("no space left"));
    store_.fail_open(unavailable("no space left"));
  }
  void come_back() { pass(2s); }

  boost::asio::io_context io_{1};
  store::MemoryStore memory_;
  store::FaultyStore store_{memory_};
  const ManualClock* clock_ = nullptr;
  ManualClock* own_clock_ = nullptr;  // these four belong to the machine
  TestAlarms alarms_{clock_};
  CardInUse* card_ = nullptr;
  KeptPrograms* programs_ = nullptr;
  KeptOrders keepers_;
  std::optional<engine::Engine> engine_;
  std::optional<Guard> guard_;
  LeaseId id_;
};

}  // namespace sublet::guard
