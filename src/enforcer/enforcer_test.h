// SPDX-License-Identifier: Apache-2.0
// A world for tests of the enforcer: an engine on a clock, timers, a card and an actor of the test.
#pragma once

#include "enforcer/enforcer.h"
#include "engine/machine.h"
#include "store/memory_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace sublet::enforcer {

inline constexpr ProcessRef offender{4711, 60};

// Timers that ring when the test's clock has passed them.
class Timers {
 public:
  struct Timer {
    Time at = Time::never();
    std::function<void()> ring;
  };
  explicit Timers(const Clock& clock) : clock_(clock) {}
  // Rings the timers that are due. False: none was.
  bool ring() {
    for (const std::weak_ptr<Timer>& each : std::vector(timers_)) {
      const auto timer = each.lock();
      if (!timer || timer->at > clock_.now()) continue;
      timer->at = Time::never();
      std::exchange(timer->ring, {})();
      return true;
    }
    return false;
  }
  std::unique_ptr<machine::Alarm> make() {
    auto timer = std::make_shared<Timer>();
    timers_.push_back(timer);
    return std::make_unique<TestAlarm>(clock_, std::move(timer));
  }

 private:
  struct TestAlarm final : machine::Alarm {
    TestAlarm(const Clock& given, std::shared_ptr<Timer> its) : clock(given), timer(std::move(its)) {}
    void set(Duration from_now, std::function<void()> ring) override {
      timer->at = clock.now() + from_now;
      timer->ring = std::move(ring);
    }
    void cancel() override { timer->at = Time::never(); }
    const Clock& clock;
    std::shared_ptr<Timer> timer;
  };
  const Clock& clock_;
  std::vector<std::weak_ptr<Timer>> timers_;
};

// A card that lists what the test says.
class TestCard final : public machine::Probe {
 public:
  explicit TestCard(const ManualClock& clock) : clock_(clock) {}
  void start(Events events) override { events_ = std::move(events); }
  void stop() override {}
  void take_now() override { wanted = true; }
  void set_busy(bool) override {}
  const std::string& library() const override { return none_; }
  const std::string& driver_version() const override { return none_; }
  const std::string& problem() const override { return none_; }
  void tell() {
    wanted = false;
    gpu::GpuDevice device;
    device.uuid = "GPU-1";
    device.name = "Simulated";
    device.simulated = true;
    device.total = 24 * GiB;
    device.used = GiB;
    device.processes = listed;
    device.problem = device_problem;
    gpu::GpuSnapshot snapshot;
    snapshot.devices = {device};
    if (!late) asked_ns_ = clock_.monotonic_ns();
    events_.snapshot(std::move(snapshot), asked_ns_);
  }

  std::vector<gpu::GpuProcess> listed{};
  std::string device_problem{};
  bool late = false;  // each answer is the last one before it
  bool wanted = false;

 private:
  const ManualClock& clock_;
  Events events_;
  std::int64_t asked_ns_ = 0;
  std::string none_;
};

// Processes and an actor that answer as the test says.
class TestUnleased final : public machine::Unleased {
 public:
  Result<std::uint64_t> hold(ProcessRef process, std::uint64_t) override {
    held.push_back(process);
    if (problem) return *problem;
    if (!living.contains(process)) return not_found("it has ended");
    return std::uint64_t{99};
  }
  void let_go(ProcessRef) override {}
  bool lives(ProcessRef process) const override { return living.contains(process); }
  Result<proc::ProcessRecord> describe(ProcessRef process) const override {
    if (!living.contains(process)) return not_found("it has ended");
    proc::ProcessRecord record;
    record.process = process;
    const auto name = names.find(process);
    record.name = name == names.end() ? "program" : name->second;
    const auto uid = uids.find(process);
    record.uid = uid == uids.end() ? 0 : uid->second;
    const auto own = parents_of.find(process);
    record.ancestry = own == parents_of.end() ? parents : own->second;
    return record;
  }
  void trace(ProcessRef, std::function<void(const machine::Parents&)> told) override {
    traced.push_back(std::move(told));
  }
  LeaseId lease_above(const std::vector<proc::Ancestor>& ancestry) const override {
    const auto is_member = [this](const proc::Ancestor& each) { return each.process.pid == member; };
    return member == 0 || std::ranges::any_of(ancestry, is_member) ? above : LeaseId{};
  }
  void open_sources(const std::string&) override {}
  const std::vector<machine::LinkSource>& sources() const override { return sources_; }
  void look(ProcessRef process, Done done) override {
    looked.push_back(process);
    const auto own = answers.find(process);
    waiting.emplace_back(std::move(done), own == answers.end() ? answer : own->second);
  }
  void end(std::uint64_t, ProcessRef process, int signal, const std::vector<ProcessRef>& its, Done done) override {
    signals.push_back(signal);
    signalled.push_back(process);
    spare = its;
    waiting.emplace_back(std::move(done), answer);
  }
  void close(std::uint64_t) override {}
  // Gives the answers that are due. False: none was.
  bool answer_all() {
    if (silent) return false;
    const auto due = std::exchange(waiting, {});
    for (const auto& [done, its] : due) done(its);
    return !due.empty();
  }

  bool silent = false;  // the actor gives no answers now
  std::set<ProcessRef> living{offender};
  std::vector<proc::Ancestor> parents{{{4000, 50}, 0, "bash"}, {{1, 1}, 0, "systemd"}};
  machine::UnleasedResult answer{.kind = machine::UnleasedResult::Kind::done, .device_file = true, .sent = 1};
  std::map<ProcessRef, std::string> names{};
  std::map<ProcessRef, std::uint32_t> uids{};                    // others have 0
  std::map<ProcessRef, machine::UnleasedResult> answers{};       // to a look; others get `answer`
  std::map<ProcessRef, std::vector<proc::Ancestor>> parents_of;  // others have `parents`
  LeaseId above;                                                 // lease of `member`
  std::int32_t member = 0;                                       // pid above spared processes; 0: above all
  std::optional<Error> problem;                                  // of hold()
  std::vector<ProcessRef> held;
  std::vector<ProcessRef> looked;
  std::vector<int> signals;
  std::vector<ProcessRef> signalled;  // the process of each signal
  std::vector<ProcessRef> spare;      // of the last signal
  std::vector<std::function<void(const machine::Parents&)>> traced;
  std::vector<std::pair<Done, machine::UnleasedResult>> waiting;

 private:
  std::vector<machine::LinkSource> sources_;
};

class EnforcerTest : public ::testing::Test {
 protected:
  static constexpr Duration interval = std::chrono::seconds(15), grace = std::chrono::seconds(300);

  // Without a daemon: start_again() starts one.
  explicit EnforcerTest(bool starts) {
    if (starts) start_again();
  }
  EnforcerTest() : EnforcerTest(true) {}
  ~EnforcerTest() override {
    if (engine) engine->stop();
  }

  // Starts a daemon with the rows of the earlier one. Nothing is quiet after it.
  void start_again(const std::string& boot_id = "boot") {
    if (engine) engine->stop();
    std::optional<std::set<ProcessRef>> living;
    if (unleased != nullptr) living = unleased->living;
    enforcer.reset();
    engine.reset();
    engine::MachineOptions options;
    options.actor.socket = "/nonexistent";
    engine::Machine machine = engine::real_machine(io, options);
    const Time at = clock == nullptr ? Time{1'795'780'800'000'000'000} : clock->now();
    const std::int64_t monotonic = clock == nullptr ? 1'000'000'000'000 : clock->monotonic_ns();
    auto made = std::make_unique<ManualClock>(at, monotonic);
    clock = made.get();
    machine.clock = std::move(made);
    timers.emplace(*clock);
    machine.alarm = [this] { return timers->make(); };
    auto new_card = std::make_unique<TestCard>(*clock);
    card = new_card.get();
    card->listed = first_listed;
    machine.probe = std::move(new_card);
    auto new_unleased = std::make_unique<TestUnleased>();
    unleased = new_unleased.get();
    if (living) unleased->living = *living;
    unleased->problem = hold_problem;
    machine.unleased = std::move(new_unleased);
    engine::Options its;
    its.exit_dir = "/nonexistent/exits";
    its.boot_id = boot_id;
    engine.emplace(io, store, std::move(machine), std::move(its));
    enforcer.emplace(*engine, *unleased, Options{.interval = interval, .grace = grace});
    engine->capabilities().add(*enforcer);
    EXPECT_TRUE(engine->start());
    settle();
  }

  // Runs all that is ready, without letting time pass.
  void settle() {
    for (bool more = true; more;) {
      io.restart();
      more = io.poll() > 0;
      store.pump();
      more = unleased->answer_all() || more;
      if (card->wanted) card->tell(), more = true;
      more = timers->ring() || more;
    }
  }
  // Lets this time pass, second by second.
  void pass(Duration time) {
    for (Duration gone{}; gone < time; gone += std::chrono::milliseconds(500)) {
      clock->advance(std::chrono::milliseconds(500));
      settle();
    }
  }
  void see_three_times() {
    pass(3 * interval);
    ASSERT_FALSE(enforcer->verdicts().empty());
    ASSERT_GE(verdict().sightings, sightings_needed);
  }
  // Until SIGTERM was sent.
  void be_condemned() {
    see_three_times();
    set_policy("user:0", Policy::enforce);
    pass(interval);
    ASSERT_EQ(verdict().stage, Stage::terminating);
  }
  std::uint64_t set_policy(const char* subject, Policy policy, bool settles = true) {
    const std::uint64_t id =
        enforcer->add({.kind = Rule::Kind::policy, .subject = *parse_subject(subject), .policy = policy}).id;
    if (settles) store_rows();
    return id;
  }
  // A lease that lasts an hour, until end_lease().
  LeaseId submit_lease() {
    core::Submit submit;
    submit.lease.user = submit.lease.tenant = submit.lease.consumer = "ana";
    submit.lease.vram = GiB;
    submit.lease.owner.kind = core::OwnerKind::token;
    submit.lease.ttl = std::chrono::hours(1);
    LeaseId id;
    EXPECT_TRUE(engine->request(submit, {}, [&](const core::Lease& lease) {
      id = lease.id;
      return engine::Answered{202, "{}"};
    }));
    settle();
    EXPECT_NE(core::find(engine->state(), id), nullptr);
    return id;
  }
  void end_lease(LeaseId id) {
    EXPECT_TRUE(engine->request(core::Release{.lease = id}, {}, [](const core::Lease&) {
      return engine::Answered{200, "{}"};
    }));
    settle();
    EXPECT_EQ(core::find(engine->state(), id), nullptr);
  }
  // Lets the process hold memory from now on.
  void add(ProcessRef process, Bytes used, bool draws = false) {
    unleased->living.insert(process);
    card->listed.push_back({.process = process, .used = used, .graphics_only = draws});
  }
  // The process has ended.
  void end(ProcessRef process) {
    unleased->living.erase(process);
    std::erase_if(card->listed, [process](const gpu::GpuProcess& each) { return each.process == process; });
  }
  const Verdict& verdict_of(ProcessRef process) const { return *enforcer->verdict_of(process.pid); }
  void store_rows() {
    EXPECT_TRUE(engine->store_rows("enforcement_changed", {}, [] { return engine::Answered(); }));
    settle();
  }
  const Verdict& verdict() const { return enforcer->verdicts().rbegin()->second; }

  boost::asio::io_context io{1};
  store::MemoryStore store;
  ManualClock* clock = nullptr;  // of the machine, as the next two
  TestCard* card = nullptr;
  TestUnleased* unleased = nullptr;
  std::optional<Error> hold_problem;  // of the next daemon
  std::vector<gpu::GpuProcess> first_listed{{.process = offender, .used = GiB}};
  std::optional<Timers> timers;
  std::optional<engine::Engine> engine;
  std::optional<Enforcer> enforcer;
};

}  // namespace sublet::enforcer
