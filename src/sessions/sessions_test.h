// SPDX-License-Identifier: Apache-2.0
// The capability with an engine, one card of 24 GiB and a clock of the test.
#pragma once

#include "proc/process_table.h"
#include "sessions/sessions.h"

#include "store/memory_store.h"

#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>

#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sublet::sessions {

using namespace std::chrono_literals;

// An empty card; the test sends its snapshots.
class EmptyCard final : public machine::Probe {
 public:
  explicit EmptyCard(const ManualClock& clock) : clock_(clock) {}
  void start(Events events) override { events_ = std::move(events); }
  void stop() override {}
  void take_now() override {}
  void set_busy(bool) override {}
  const std::string& library() const override { return none_; }
  const std::string& driver_version() const override { return none_; }
  const std::string& problem() const override { return none_; }
  void tell() {
    gpu::GpuSnapshot snapshot;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      gpu::GpuDevice card;
      card.index = static_cast<int>(i);
      card.uuid = "GPU-" + std::to_string(i + 1);
      card.name = "Simulated";
      card.simulated = true;
      card.total = sizes[i] + 256 * MiB;
      snapshot.devices.push_back(card);
    }
    events_.snapshot(std::move(snapshot), clock_.monotonic_ns());
  }

  std::vector<Bytes> sizes{24 * GiB};  // that can be leased

 private:
  const ManualClock& clock_;
  Events events_;
  std::string none_;
};

// Keeps the orders. The test answers them.
struct KeptOrders final : machine::Keepers {
  bool ready() const override { return is_ready; }
  void start(const machine::KeeperOrder& order, Done done) override {
    orders.push_back(order);
    answers.push_back(std::move(done));
  }
  nlohmann::json document(std::size_t i) const { return nlohmann::json::parse(orders.at(i).document); }

  bool is_ready = true;
  std::vector<machine::KeeperOrder> orders;
  std::vector<Done> answers;
};

class SessionsTest : public testing::Test {
 protected:
  SessionsTest() {
    options_.runs.host = "unix:///run/sublet.sock";
    options_.runs.log_dir = "/nonexistent/logs";
    rules_.ledger_reserve = {};  // the tests' machine may be short of memory
    rules_.ledger_max_pressure = 1;
    options_.activity = [this](LeaseId) { return activity_; };
    start();
  }
  ~SessionsTest() override { engine_->stop(); }

  void start() {
    engine::MachineOptions real;
    real.actor.socket = "/nonexistent";
    engine::Machine machine = engine::real_machine(io_, real);
    auto clock = std::make_unique<ManualClock>(now_, monotonic_ns_);
    clock_ = clock.get();
    machine.clock = std::move(clock);
    card_ = new EmptyCard(*clock_);
    machine.probe = std::unique_ptr<machine::Probe>(card_);
    if (!sizes_.empty()) card_->sizes = sizes_;
    engine::Options options;
    options.exit_dir = "/nonexistent/exits";
    options.boot_id = "boot";
    options.rules = rules_;
    engine_.emplace(io_, store_, std::move(machine), std::move(options));
    sessions_.emplace(*engine_, keepers_, options_);
    engine_->capabilities().add(*sessions_);
    ASSERT_TRUE(engine_->start());
    card_->tell();
    settle();
  }
  // The daemon is killed, and another one starts.
  void restart(Duration after = {}) {
    now_ = clock_->now() + after;
    monotonic_ns_ = clock_->monotonic_ns() + after.count();
    engine_->stop();
    sessions_.reset();
    engine_.reset();
    start();
  }
  // Until nothing happens any more without time.
  void settle() {
    for (int round = 0; round < 20; ++round) {
      io_.restart();
      io_.poll();
      store_.pump();
    }
  }
  void advance(Duration time) {
    clock_->advance(time);
    card_->tell();
    engine_->call_capabilities();
    settle();
  }
  // In steps that are no clock gap.
  void pass(Duration time, Duration step = 5s) {
    for (Duration left = time; left > Duration{}; left -= step) advance(std::min(left, step));
  }

  Session fresh(Duration ttl = 100s, bool command = false) {
    Session session;
    session.uid = 1000;
    session.user = "ana";
    session.request.lease = {{"vram_bytes", GiB.count}};
    session.request.ttl = ttl;
    session.request.checkpoint_timeout = 60s;
    if (command) session.request.command = {{"train"}, {"A=1"}, "/tmp", 022, nlohmann::json::array(), "train"};
    const auto number = sessions_->next_number(session.uid, session.user);
    if (number) session.number = *number;
    return session;
  }
  // A session without a command, as the API opens it.
  std::uint64_t open(Duration ttl = 100s, Bytes vram = GiB, std::vector<std::string> checkpoint = {}) {
    Session session = fresh(ttl);
    session.request.checkpoint = std::move(checkpoint);
    const std::uint64_t number = session.number;
    submit(session, vram);
    return number;
  }
  // A lease that no session has.
  LeaseId plain_lease(Bytes vram, core::Tier tier = core::Tier::standard) {
    core::Submit submit = submit_of(fresh(), vram);
    submit.lease.tier = tier;
    submit.lease.tag = "plain-" + std::to_string(++plain_leases_);
    LeaseId id;
    EXPECT_TRUE(engine_->request(submit, {}, [&](const core::Lease& lease) {
      id = lease.id;
      return engine::Answered{};
    }));
    settle();
    return id;
  }
  core::Submit submit_of(const Session& session, Bytes vram) {
    core::Submit submit;
    submit.lease.uid = session.uid;
    submit.lease.user = submit.lease.tenant = session.user;
    submit.lease.consumer = "session";
    submit.lease.tag = session.tag();
    submit.lease.vram = vram;
    submit.lease.ttl = session.request.ttl;
    submit.lease.owner.kind = core::OwnerKind::token;
    return submit;
  }
  LeaseId submit(Session session, Bytes vram = GiB) {
    core::Submit submit = submit_of(session, vram);
    submit.lease.device_count = static_cast<int>(session.request.number("devices", 1));
    const std::uint64_t number = session.number;
    const auto done = engine_->request(submit, {}, [&](const core::Lease& lease) {
      if (sessions_->find(number) == nullptr) sessions_->add(std::move(session));
      sessions_->submitted(number, lease);
      return engine::Answered{};
    });
    EXPECT_TRUE(done);
    settle();
    return at(number).progress.lease;
  }
  // This test is a process of its lease.
  void has_process(std::uint64_t number) {
    core::Attach attach{.lease = at(number).progress.lease, .owner = {}, .as_owner = false, .booked = {}};
    attach.booked.process = proc::ProcRoot::open()->read(::getpid())->ref;
    decide(attach);
    advance(1s);
    EXPECT_TRUE(engine_->programs().inhabited(attach.lease));
  }
  // Its lease has a program that parks itself on request; its answers are those of the test.
  void cooperates(std::uint64_t number) {
    core::Cooperation how;
    how.process = proc::ProcRoot::open()->read(::getpid())->ref;
    decide(core::Cooperate{at(number).progress.lease, 0, how});
  }
  void decide(const core::Fact& fact) {
    const auto done = engine_->decide(fact);
    EXPECT_TRUE(done) << done.error().detail;
    settle();
  }
  // Its program has parked itself, and the readings show it.
  void parks(std::uint64_t number) {
    decide(core::AttemptEvent{at(number).progress.lease, core::Parked{.done = true}});
    pass(6s, 1s);
    ASSERT_EQ(lease(number).state, core::LeaseState::paused);
  }
  const Session& at(std::uint64_t number) const { return *sessions_->find(number); }
  State state(std::uint64_t number) const { return at(number).progress.state; }
  const core::Lease& lease(std::uint64_t number) const { return *engine_->find(at(number).progress.lease); }
  Status close(std::uint64_t number, bool park = true, std::uint32_t by = 1000) {
    const Status done = sessions_->close(at(number), {.park = park, .by = by});
    settle();
    return done;
  }

  boost::asio::io_context io_{1};
  store::MemoryStore store_;
  KeptOrders keepers_;
  Options options_;
  int plain_leases_ = 0;
  core::Rules rules_;
  std::vector<Bytes> sizes_;  // of the cards; empty: one of 24 GiB
  Activity activity_{Activity::State::idle, {}};
  ManualClock* clock_ = nullptr;  // these two belong to the engine
  EmptyCard* card_ = nullptr;
  Time now_{1'795'780'800'000'000'000};
  std::int64_t monotonic_ns_ = 0;
  std::optional<engine::Engine> engine_;
  std::optional<Sessions> sessions_;
};

}  // namespace sublet::sessions
