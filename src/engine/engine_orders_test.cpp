// SPDX-License-Identifier: Apache-2.0
// What the engine orders, and to whom it listens, around ends and stores that fail: cases that the seeded simulation
// (tests/sim) has found.
#include "engine/engine.h"

#include "store/faulty_store.h"
#include "store/memory_store.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <map>

namespace sublet::engine {
namespace {

namespace asio = boost::asio;
using core::LeaseState;
using store::FaultyStore;

// One empty card, as often as the test says.
class OneCard final : public Probe {
 public:
  void start(Events events) override { events_ = std::move(events); }
  void stop() override {}
  void take_now() override {}
  void set_busy(bool) override {}
  const std::string& library() const override { return none_; }
  const std::string& driver_version() const override { return none_; }
  const std::string& problem() const override { return none_; }
  // So much of it is used, by nobody who is listed with it.
  void tell(Bytes used = {}) {
    gpu::GpuDevice card;
    card.uuid = "GPU-1";
    card.name = "Simulated";
    card.simulated = true;
    card.total = 24 * GiB;
    card.used = used;
    if (used > Bytes{}) card.processes.push_back({.process = {4322, 6}, .used = Bytes{}});
    gpu::GpuSnapshot snapshot;
    snapshot.devices = {card};
    events_.snapshot(std::move(snapshot), monotonic_ns());
  }

 private:
  Events events_;
  std::string none_;
};

// Programs that yield by themselves: the test answers for them.
class NotingCooperation final : public Cooperation {
 public:
  void open(std::uint64_t, Events given) override { events = std::move(given); }
  void yield(const core::Lease&, const std::string&, Duration, Done done) override {
    orders.emplace_back("yield"), waits = std::move(done);
  }
  void resume(const core::Lease&, Duration, Done done) override {
    orders.emplace_back("resume"), waits = std::move(done);
  }
  YieldOrder order(LeaseId) const override { return {}; }
  Status answer(LeaseId, std::uint64_t, YieldAnswer, const std::string&) override { return {}; }
  std::string answer_file(LeaseId) const override { return {}; }
  void forget(LeaseId) override {}
  Events events;
  std::vector<std::string> orders;
  Done waits;
};

// Notes its orders, and answers when the test says so.
class NotingParker final : public Parker {
 public:
  void park(LeaseId lease, Program, Duration give_up, List, Touch touch, Weigh, Done done) override {
    orders.emplace_back("park"), given_up.push_back(give_up), waiting[lease] = std::move(done), ask = std::move(touch);
  }
  void unpark(LeaseId lease, std::vector<ProcessRef> its, std::vector<Room> needs, Duration give_up,
              Done done) override {
    room = std::move(needs);
    orders.emplace_back("unpark"), given_up.push_back(give_up), waiting[lease] = std::move(done), tree = std::move(its);
  }
  bool busy(LeaseId lease) const override { return waiting.contains(lease); }
  void when_returned(std::function<void(LeaseId)> told) override { returned = std::move(told); }
  void forget(LeaseId lease) override { waiting.erase(lease); }
  void answer(LeaseId lease) {
    const auto done = waiting.extract(lease);
    done.mapped()({.kind = ParkOutcome::Kind::done});
  }
  // Asks whether it may lock this process; answered in `may`.
  void ask_for(ProcessRef process) {
    may.reset();
    ask({process}, [this](bool answer) {
      EXPECT_FALSE(may) << "told twice";
      may = answer;
    });
  }
  std::vector<std::string> orders;
  std::vector<Duration> given_up;  // of each, after which a call is
  std::map<LeaseId, Done> waiting;
  std::function<void(LeaseId)> returned;
  Touch ask;
  std::optional<bool> may;
  std::vector<ProcessRef> tree;  // of the last unpark
  std::vector<Room> room;
};

class EngineOrders : public testing::Test {
 protected:
  EngineOrders() {
    MachineOptions real;
    real.actor.socket = "/nonexistent";
    Machine machine = real_machine(io_, real);
    machine.probe = std::unique_ptr<Probe>(probe_);
    machine.parker = std::unique_ptr<Parker>(parker_);
    machine.cooperation = std::unique_ptr<Cooperation>(cooperation_);
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

  // An active lease of this test's own process.
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
  void pause() { request(core::Pause{id_, 0, "the test wants it", {.available = 64 * GiB, .headroom = {}}}); }
  // By the driver, with so much parked in host memory.
  void be_paused(Bytes host_bytes) {
    pause();
    settle();
    ParkOutcome parked{.kind = ParkOutcome::Kind::done, .parked = {{4321, 5}}};
    parked.host_bytes = host_bytes;
    parker_->waiting.extract(id_).mapped()(parked);
    settle();
    for (int proof = 0; proof < 2; ++proof) probe_->tell(), settle();
    ASSERT_EQ(state(), LeaseState::paused);
  }
  LeaseState state() const { return engine_->state().find(id_)->state; }

  asio::io_context io_{1};
  store::MemoryStore inner_;
  FaultyStore store_{inner_};
  OneCard* probe_ = new OneCard;  // the machine's
  NotingParker* parker_ = new NotingParker;
  NotingCooperation* cooperation_ = new NotingCooperation;
  std::optional<Engine> engine_;
  LeaseId id_;
};

TEST_F(EngineOrders, WhoSaysThatItGoesOnIsNotToldAgainByAnOrderThatWaitsForItsCommit) {
  run();
  core::Cooperation how;
  how.way = core::CooperationWay::webhook;
  how.address = "http://127.0.0.1/yield";
  request(core::Cooperate{id_, 0, how});
  pause();
  settle();
  cooperation_->waits({.kind = ParkOutcome::Kind::unknown, .code = "late", .detail = "not in time"});
  ASSERT_EQ(state(), LeaseState::resuming);
  cooperation_->events.runs_late(id_);  // before the order to go on is durable
  EXPECT_EQ(state(), LeaseState::active);
  settle();
  EXPECT_EQ(cooperation_->orders, std::vector<std::string>{"yield"});
}

TEST_F(EngineOrders, WhatEndedBeforeItsOrderWasDurableIsNotParked) {
  run();
  pause();
  request(core::ProgramEnded{id_, 0, false});
  settle();
  EXPECT_TRUE(parker_->orders.empty()) << "nobody would bring it back";
}

TEST_F(EngineOrders, AnEndThatIsLostLeavesTheLeaseToThoseWhoHoldIt) {
  core::Submit submit;
  submit.held = true;
  submit.lease.user = submit.lease.tenant = submit.lease.consumer = "ana";
  submit.lease.vram = GiB;
  request(submit);
  engine_->hold(id_, 1);
  settle();
  store_.fail_commit(1, FaultyStore::Fate::lost, unavailable("no space left"));
  request(core::Release{.lease = id_});
  settle();
  ASSERT_NE(engine_->state().find(id_), nullptr);
  EXPECT_FALSE(engine_->state().find(id_)->unheld_since) << "its connection is open";
}

TEST_F(EngineOrders, AProgramThatIsAttachedInTheStepInWhichItsTimeIsOverIsFollowed) {
  begin(std::chrono::nanoseconds(1));
  ASSERT_TRUE(engine_->state().find(id_)->ended());
  EXPECT_TRUE(engine_->programs().can_signal(id_)) << "it is to be ended";
}

TEST_F(EngineOrders, TheDriverLocksOnceItIsStoredWhom) {
  run();
  pause();
  settle();
  parker_->ask_for({4321, 5});
  turn();
  EXPECT_FALSE(parker_->may) << "not durable yet";
  settle();
  ASSERT_EQ(parker_->may, true);
  parker_->waiting.extract(id_).mapped()({.kind = ParkOutcome::Kind::unknown, .code = "helper", .detail = "it ended"});
  settle();
  EXPECT_EQ(parker_->orders.back(), "unpark");
  EXPECT_EQ(parker_->tree, (std::vector<ProcessRef>{{4321, 5}})) << "whom it locked, not who lives by now";
}

TEST_F(EngineOrders, RoomIsMadeSureOfWhereTheCardIsSeenToBeFull) {
  for (const bool full : {false, true}) {
    SCOPED_TRACE(full ? "full" : "free");
    run();
    be_paused(GiB);
    request(core::Resume{id_});  // there is room in the table, and by the newest reading
    if (full) probe_->tell(24 * GiB);
    settle();
    ASSERT_EQ(parker_->orders.back(), "unpark");
    EXPECT_EQ(parker_->room.empty(), !full);
    parker_->answer(id_);
    settle();
    request(core::ProgramEnded{id_, 0, false});
    settle();
    probe_->tell();
    settle();
  }
}

TEST_F(EngineOrders, ACallHasTheTimeThatTheCoreGivesIt) {
  run();
  pause();
  settle();
  // One that was given up counts as out until it has returned.
  parker_->waiting.extract(id_).mapped()({.kind = ParkOutcome::Kind::unknown, .code = "stuck", .detail = "it hangs"});
  settle();
  ASSERT_EQ(parker_->orders, (std::vector<std::string>{"park", "unpark"}));
  EXPECT_GE(std::ranges::min(parker_->given_up), std::chrono::seconds(30));
  EXPECT_LE(std::ranges::max(parker_->given_up), std::chrono::hours(4));
  EXPECT_TRUE(engine_->state().stuck(id_));
  parker_->returned(id_);
  settle();
  EXPECT_EQ(parker_->orders.size(), 2U) << "somebody is looking already";
  parker_->waiting.extract(id_).mapped()({.kind = ParkOutcome::Kind::unknown, .code = "stuck", .detail = "it hangs"});
  settle();
  ASSERT_EQ(parker_->orders.size(), 2U) << "it is tried again later …";
  parker_->returned(id_);
  settle();
  ASSERT_EQ(parker_->orders.size(), 3U) << "… or at once, when there is reason to";
  parker_->answer(id_);
  settle();
  EXPECT_EQ(state(), LeaseState::active);
  parker_->returned(id_);
  settle();
  EXPECT_EQ(parker_->orders.size(), 3U);
}

TEST_F(EngineOrders, NobodyIsLockedForALeaseThatHasEndedOrWhenItCannotBeStored) {
  run();
  pause();
  settle();
  store_.fail_commit(1, FaultyStore::Fate::lost, unavailable("no space left"));
  parker_->ask_for({4321, 5});
  settle();
  EXPECT_EQ(parker_->may, false);
  ASSERT_EQ(state(), LeaseState::resuming) << "read anew, and undone";
  parker_->ask_for({4321, 5});
  EXPECT_EQ(parker_->may, false) << "it is to come back";

  parker_->answer(id_);
  settle();
  parker_->answer(id_);
  settle();
  ASSERT_EQ(state(), LeaseState::active);
  pause();
  settle();
  parker_->ask_for({4321, 5});
  request(core::ProgramEnded{id_, 0, false});
  EXPECT_EQ(parker_->may, false);
  settle();
}

TEST_F(EngineOrders, WhatComesOfAnOrderFromBeforeTheStoreFailedAnswersNoLaterOne) {
  run();
  pause();
  settle();
  ASSERT_EQ(parker_->orders, std::vector<std::string>{"park"});
  store_.fail_commit(1, FaultyStore::Fate::lost, unavailable("no space left"));
  request(core::Renew{.lease = id_, .generation = 0, .ttl = std::chrono::hours(1)});
  settle();
  EXPECT_EQ(state(), LeaseState::resuming) << "read anew, and undone";
  parker_->answer(id_);  // the park of before; the order to unpark is not durable yet
  EXPECT_EQ(state(), LeaseState::resuming);
  settle();
  EXPECT_EQ(parker_->orders.back(), "unpark");
  EXPECT_EQ(parker_->orders.size(), 2U);
  parker_->answer(id_);
  settle();
  EXPECT_EQ(state(), LeaseState::active);
}

}  // namespace
}  // namespace sublet::engine
