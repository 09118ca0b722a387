// SPDX-License-Identifier: Apache-2.0
// An engine on a test machine: the test plays the device, the parker and the cooperative programs.
#pragma once

#include "engine/engine.h"

#include "store/faulty_store.h"
#include "store/memory_store.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <map>

namespace sublet::engine {

namespace asio = boost::asio;
using core::LeaseState;
using store::FaultyStore;

// An empty card; the test sends its snapshots.
class OneCard final : public machine::Probe {
 public:
  void start(Events events) override { events_ = std::move(events); }
  void stop() override {}
  void take_now() override {}
  void set_busy(bool) override {}
  const std::string& library() const override { return none_; }
  const std::string& driver_version() const override { return none_; }
  const std::string& problem() const override { return none_; }
  // Reports `used` bytes, which no listed process explains.
  void tell(Bytes used = {}) {
    tell(used, used > Bytes{} ? std::vector<gpu::GpuProcess>{{.process = {4322, 6}, .used = Bytes{}}}
                              : std::vector<gpu::GpuProcess>{});
  }
  void tell(Bytes used, std::vector<gpu::GpuProcess> processes) {
    gpu::GpuDevice card;
    card.uuid = "GPU-1";
    card.name = "Simulated";
    card.simulated = true;
    card.total = 24 * GiB;
    card.used = used;
    card.processes = std::move(processes);
    gpu::GpuSnapshot snapshot;
    snapshot.devices = {card};
    events_.snapshot(std::move(snapshot), monotonic_ns());
  }

 private:
  Events events_;
  std::string none_;
};

// Cooperative programs that the test plays.
class NotingCooperation final : public pause::Cooperation {
 public:
  void open(Events given) override { events = std::move(given); }
  void number_from(std::uint64_t number) override { first_number = number; }
  void yield(const core::Lease&, const std::string&, Duration, Done done) override {
    orders.emplace_back("yield"), waits = std::move(done);
  }
  void resume(const core::Lease&, Duration, Done done) override {
    orders.emplace_back("resume"), waits = std::move(done);
  }
  pause::YieldOrder order(LeaseId) const override { return {}; }
  Status answer(LeaseId, std::uint64_t, pause::YieldAnswer, const std::string&) override { return {}; }
  std::string answer_file(const core::Lease&) const override { return {}; }
  void adopt(const core::Lease&) override {}
  void forget(const core::Lease&) override {}
  void let_go(LeaseId lease) override { let_go_of.push_back(lease); }
  Events events;
  std::uint64_t first_number = 0;
  std::vector<std::string> orders;
  std::vector<LeaseId> let_go_of;
  Done waits;
};

// Records its orders; the test answers them.
class NotingParker final : public pause::Parker {
 public:
  void park(LeaseId lease, Program, Duration give_up, List, Touch touch, Weigh its, Done done) override {
    orders.emplace_back("park"), given_up.push_back(give_up), waiting[lease] = std::move(done), ask = std::move(touch);
    weigh = std::move(its);
  }
  void unpark(LeaseId lease, std::vector<ProcessRef> its, std::vector<pause::Room> needs, Duration give_up,
              Done done) override {
    room = std::move(needs);
    orders.emplace_back("unpark"), given_up.push_back(give_up), waiting[lease] = std::move(done), tree = std::move(its);
  }
  bool busy(LeaseId lease) const override { return waiting.contains(lease); }
  void when_returned(std::function<void(LeaseId)> told) override { returned = std::move(told); }
  void forget(LeaseId lease) override { waiting.erase(lease); }
  void answer(LeaseId lease) {
    const auto done = waiting.extract(lease);
    done.mapped()({.kind = pause::ParkOutcome::Kind::done});
  }
  // Asks whether it may lock this process; `may` gets the answer.
  void ask_for(ProcessRef process) {
    may.reset();
    ask({process}, [this](bool answer) {
      EXPECT_FALSE(may) << "told twice";
      may = answer;
    });
  }
  std::vector<std::string> orders;
  std::vector<Duration> given_up;  // timeout of a driver call, for each order
  std::map<LeaseId, Done> waiting;
  std::function<void(LeaseId)> returned;
  Touch ask;
  Weigh weigh;
  std::optional<bool> may;
  std::vector<ProcessRef> tree;  // of the last unpark
  std::vector<pause::Room> room;
};

class EngineOrders : public testing::Test {
 protected:
  // `change`: replaces more parts of the machine.
  explicit EngineOrders(const std::function<void(Machine&)>& change = {}) {
    MachineOptions real;
    real.actor.socket = "/nonexistent";
    Machine machine = real_machine(io_, real);
    machine.probe = std::unique_ptr<machine::Probe>(probe_);
    machine.parker = std::unique_ptr<pause::Parker>(parker_);
    machine.cooperation = std::unique_ptr<pause::Cooperation>(cooperation_);
    if (change) change(machine);
    Options options;
    options.exit_dir = "/nonexistent/exits";
    options.boot_id = "boot";
    engine_.emplace(io_, store_, std::move(machine), std::move(options));
    EXPECT_TRUE(engine_->start());
    for (const std::uint32_t uid : {0U, 1000U}) EXPECT_TRUE(engine_->set_grant({uid, "ana", true}, {}, {}));
    probe_->tell();
    settle();
  }
  ~EngineOrders() override { engine_->stop(); }

  void turn() {
    io_.restart();
    io_.poll();
  }
  void settle() {
    inner_.pump();
    turn();
  }

  void request(const core::Fact& fact) {
    const auto done = engine_->request(fact, {}, [this](const core::Lease& lease) {
      id_ = lease.id;
      return Answered{};
    });
    EXPECT_TRUE(done) << done.error().detail;
  }

  // Makes an active lease of this test's process.
  void run() {
    begin();
    settle();
  }
  void begin(const std::optional<Duration>& ttl = {}) {
    core::Submit submit;
    submit.held = true;
    submit.lease.user = submit.lease.tenant = submit.lease.consumer = "ana";
    submit.lease.vram = GiB;
    submit.lease.ttl = ttl;
    request(submit);
    const auto root = proc::ProcRoot::open();
    core::Attach attach{id_, 0, {}, true, {}};
    attach.owner = {.kind = core::OwnerKind::process,
                    .process = root->read(::getpid())->ref,
                    .keeper = root->read(::getppid())->ref,
                    .exit_record = {},
                    .inode = 0};
    request(attach);
  }
  // Makes the program cooperative, with a webhook.
  void cooperate() {
    core::Cooperation how;
    how.way = core::CooperationWay::webhook;
    how.address = "http://127.0.0.1/yield";
    request(core::Cooperate{id_, 0, how});
  }
  void pause() {
    request(core::Pause{id_, 0, {core::PauseCauseKind::owner_request}, {.available = 64 * GiB, .headroom = {}}});
  }
  // Pauses it by the driver, with `host_bytes` in host memory.
  void be_paused(Bytes host_bytes) {
    pause();
    settle();
    pause::ParkOutcome parked{.kind = pause::ParkOutcome::Kind::done, .parked = {{4321, 5}}};
    parked.host_bytes = host_bytes;
    parker_->waiting.extract(id_).mapped()(parked);
    settle();
    for (int proof = 0; proof < 2; ++proof) probe_->tell(), settle();
    ASSERT_EQ(state(), LeaseState::paused);
  }
  LeaseState state() const { return core::find(engine_->state(), id_)->state; }

  asio::io_context io_{1};
  store::MemoryStore inner_;
  FaultyStore store_{inner_};
  OneCard* probe_ = new OneCard;  // owned by the machine
  NotingParker* parker_ = new NotingParker;
  NotingCooperation* cooperation_ = new NotingCooperation;
  std::optional<Engine> engine_;
  LeaseId id_;
};

}  // namespace sublet::engine
