// SPDX-License-Identifier: Apache-2.0
// The capability with an engine, one card, one program that computes past the library, and a clock of the test.
#include "share/shares.h"

#include "machine/test_probe.h"
#include "store/memory_store.h"

#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sublet::share {
namespace {

using namespace std::chrono_literals;

constexpr ProcessRef program{10, 1};

// A card that the program uses for `percent` of the time; the test sends its snapshots.
class BusyCard final : public machine::TestProbe {
 public:
  using TestProbe::TestProbe;
  void tell() {
    gpu::GpuDevice shown = card();
    shown.used = MiB;
    shown.processes = {{.process = program, .used = MiB, .computing_percent = percent}};
    send(std::move(shown));
  }
  int percent = 0;
};

// Belongs to one lease, with a keeper. Keeps the orders about its processor time, which the test answers.
class OneProgram final : public machine::Programs {
 public:
  Status open(Events) override { return {}; }
  void introduce_all() override {}
  void follow(const core::Lease& lease, bool) override { member_ = {program, lease.id}; }
  void book(const core::Lease&) override {}
  void forget(LeaseId) override {}
  void forget_others(const std::function<bool(LeaseId)>&) override {}
  void scan() override {}
  const proc::Member* member(ProcessRef process) const override { return process == program ? &member_ : nullptr; }
  std::vector<ProcessRef> tree(LeaseId) const override { return {}; }
  bool lives(ProcessRef) const override { return true; }
  bool inhabited(LeaseId) const override { return true; }
  std::string name(ProcessRef) const override { return {}; }
  bool signal(LeaseId, int, std::uint32_t) override { return true; }
  bool keeper_alive(LeaseId) const override { return true; }
  void wake_keeper(LeaseId, std::uint32_t) override {}
  void tell(LeaseId, ProcessRef, int, std::function<void(machine::SignalResult)> done) override { done({}); }
  void keep_from_swap(LeaseId, ProcessRef, bool, std::function<void(std::string)>) override {}
  void all_are_kept() override {}
  void limit_cpu(LeaseId, machine::CpuCause, int percent,
                 std::function<void(const machine::CpuLimited&)> done) override {
    orders.push_back(percent);
    answer_ = std::move(done);
  }
  bool can_signal(LeaseId) const override { return true; }
  std::string why_not_signalled(LeaseId) const override { return {}; }
  Result<Identified> identify(std::int32_t, std::optional<std::uint32_t>, std::int32_t) const override {
    return unavailable("nobody asks");
  }
  Status check_pid_namespace(std::int32_t) const override { return {}; }
  Result<proc::CgroupRef> check_cgroup(const std::string&) const override { return unavailable("nobody asks"); }
  const proc::ProcRoot& root() const override { std::abort(); }

  // Answers the order that waits; false: none does.
  bool answer(const machine::CpuLimited& result = {}) {
    if (!answer_) return false;
    std::exchange(answer_, nullptr)(result);
    return true;
  }
  std::vector<int> orders;

 private:
  proc::Member member_;
  std::function<void(const machine::CpuLimited&)> answer_;
};

// Never rings: the test sends readings.
struct SilentAlarm final : machine::Alarm {
  void set(Duration, std::function<void()>) override {}
  void cancel() override {}
};

// A lease with a share of 30 %.
class SharesTest : public testing::Test {
 protected:
  SharesTest() {
    engine::MachineOptions real;
    real.actor.socket = "/nonexistent";
    engine::Machine machine = engine::real_machine(io_, real);
    auto clock = std::make_unique<ManualClock>();
    clock_ = clock.get();
    machine.clock = std::move(clock);
    machine.alarm = [] { return std::make_unique<SilentAlarm>(); };
    card_ = new BusyCard(*clock_);
    machine.probe = std::unique_ptr<machine::Probe>(card_);
    programs_ = new OneProgram;
    machine.programs = std::unique_ptr<machine::Programs>(programs_);
    engine::Options options;
    options.exit_dir = "/nonexistent/exits";
    options.boot_id = "boot";
    engine_.emplace(io_, store_, std::move(machine), std::move(options));
    shares_.emplace(*engine_, 1s);
    engine_->capabilities().add(*shares_);
    EXPECT_TRUE(engine_->start());
    card_->tell();
    settle();
    run();
  }
  ~SharesTest() override { engine_->stop(); }

  void run() {
    core::Submit submit;
    submit.held = true;
    submit.lease.uid = 1000;
    submit.lease.user = submit.lease.tenant = "ana";
    submit.lease.consumer = "train";
    submit.lease.vram = GiB;
    submit.lease.share = 30;
    request(submit);
    core::Attach attach{id_, 0, {}, true, {}};
    attach.owner.kind = core::OwnerKind::process;
    attach.owner.process = program;
    attach.owner.keeper = {11, 1};
    request(attach);
    settle();
  }
  void request(const core::Fact& fact) {
    const auto done = engine_->request(fact, {}, [this](const core::Lease& lease) {
      id_ = lease.id;
      return engine::Answered{};
    });
    ASSERT_TRUE(done) << done.error().detail;
  }
  void settle() {
    for (int round = 0; round < 20; ++round) {
      io_.restart();
      io_.poll();
      store_.pump();
    }
  }
  // Readings, one a second, with this use of the card.
  void read(int percent, int times = 1) {
    card_->percent = percent;
    for (int i = 0; i < times; ++i) {
      clock_->advance(1s);
      card_->tell();
      settle();
    }
  }
  void answer(const machine::CpuLimited& result = {}) {
    EXPECT_TRUE(programs_->answer(result)) << "no order was given";
    settle();
  }
  // Its use has lasted, and it is slowed down.
  void begin() {
    for (int i = 0; i < 10 && programs_->orders.empty(); ++i) read(90);
    ASSERT_EQ(programs_->orders, std::vector{50});
  }
  // Percent of a processor, by the API.
  std::string told() const {
    const auto field = nlohmann::json::parse(shares_->lease_field("share_use", *engine_->find(id_)));
    return field.at("processor_percent").dump();
  }
  std::string warning() const {
    const auto all = shares_->warnings(engine_->now());
    return all.empty() ? "" : all.front().text;
  }

  boost::asio::io_context io_{1};
  store::MemoryStore store_;
  ManualClock* clock_ = nullptr;  // these three belong to the machine
  BusyCard* card_ = nullptr;
  OneProgram* programs_ = nullptr;
  std::optional<engine::Engine> engine_;
  std::optional<Shares> shares_;
  LeaseId id_;
};

using Orders = std::vector<int>;

TEST_F(SharesTest, AProgramThatIsAskedToEndHasItsWholeProcessor) {
  begin(), answer();
  EXPECT_EQ(told(), "50");
  request(core::Release{.lease = id_, .stop = true});
  settle();
  ASSERT_TRUE(engine_->find(id_)->stop_requested && !engine_->find(id_)->ended()) << "it saves its work";
  EXPECT_EQ(programs_->orders, (Orders{50, 0}));
  answer();
  read(90, 10);
  EXPECT_EQ(programs_->orders, (Orders{50, 0})) << "it goes on as before";
  EXPECT_EQ(told(), "null");
}

TEST_F(SharesTest, ALimitWhoseChangeIsRefusedIsLifted) {
  begin(), answer();
  read(20), answer({.why_not = "Invalid argument"});
  EXPECT_EQ(programs_->orders, (Orders{50, 63, 0})) << "what is in force is lifted at once";
  EXPECT_EQ(told(), "50") << "until this is done";
  EXPECT_NE(warning(), "");
  answer();
  EXPECT_EQ(told(), "null");
  EXPECT_EQ(warning(), "");
}

TEST_F(SharesTest, ALimitThatIsNotLiftedIsLiftedAgain) {
  begin(), answer();
  request(core::Release{.lease = id_, .stop = true});
  settle();
  answer({.why_not = "Device or resource busy"});
  EXPECT_EQ(programs_->orders, (Orders{50, 0})) << "not at once";
  EXPECT_EQ(told(), "50");
  read(90), answer();
  EXPECT_EQ(programs_->orders, (Orders{50, 0, 0}));
  EXPECT_EQ(told(), "null");
}

TEST_F(SharesTest, AnOrderForAProgramThatCannotBeLimitedIsGivenOnce) {
  begin(), answer({.why_not = "Sublet did not start its program"});
  EXPECT_TRUE(warning().ends_with("; its processor time is not limited: Sublet did not start its program"));
  read(90, 10);
  EXPECT_EQ(programs_->orders, Orders{50});
  read(0, 3);
  EXPECT_EQ(warning(), "");
}

TEST_F(SharesTest, AFailureThatPassesIsLoggedOnceAndTold) {
  testing::internal::CaptureStdout();
  begin(), answer({.why_not = "the actor does not know its program", .passes = true});
  for (int i = 0; i < 5; ++i) read(90), answer({.why_not = "the actor does not know its program", .passes = true});
  const std::string logged = testing::internal::GetCapturedStdout();
  EXPECT_NE(logged.find("is not set"), std::string::npos);
  EXPECT_EQ(logged.find("is not set"), logged.rfind("is not set")) << logged;
  EXPECT_TRUE(warning().ends_with("; its processor time is not limited: the actor does not know its program"));
  read(90), answer();
  EXPECT_EQ(told(), "50") << "the actor has come";
  EXPECT_TRUE(warning().ends_with("; its program gets less processor time until it is within its share"));
}

TEST_F(SharesTest, AReadingCountsOnceUntilTheNextOne) {
  begin(), answer();
  for (int i = 0; i < 3; ++i) {
    clock_->advance(1s);
    engine_->call_capabilities();
    settle();
  }
  EXPECT_EQ(programs_->orders, Orders{50}) << "readings are seldom";
  read(90);
  EXPECT_EQ(programs_->orders, (Orders{50, 25}));
}

}  // namespace
}  // namespace sublet::share
