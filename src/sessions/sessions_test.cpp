// SPDX-License-Identifier: Apache-2.0
// The capability with an engine, one card of 24 GiB and a clock of the test.
#include "sessions/sessions.h"

#include "store/memory_store.h"

#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>

#include <optional>
#include <string>
#include <vector>

namespace sublet::sessions {
namespace {

using namespace std::chrono_literals;

// An empty card; the test sends its snapshots.
class EmptyCard final : public engine::Probe {
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
    gpu::GpuDevice card;
    card.uuid = "GPU-1";
    card.name = "Simulated";
    card.simulated = true;
    card.total = 24 * GiB + 256 * MiB;  // 24 GiB can be leased
    gpu::GpuSnapshot snapshot;
    snapshot.devices = {card};
    events_.snapshot(std::move(snapshot), clock_.monotonic_ns());
  }

 private:
  const ManualClock& clock_;
  Events events_;
  std::string none_;
};

// Keeps the orders. The test answers them.
struct KeptOrders final : engine::Keepers {
  bool ready() const override { return is_ready; }
  void start(const engine::KeeperOrder& order, Done done) override {
    orders.push_back(order);
    answers.push_back(std::move(done));
  }
  nlohmann::json document(std::size_t i) const { return nlohmann::json::parse(orders.at(i).document); }

  bool is_ready = true;
  std::vector<engine::KeeperOrder> orders;
  std::vector<Done> answers;
};

class SessionsTest : public testing::Test {
 protected:
  SessionsTest() {
    options_.host = "unix:///run/sublet.sock";
    options_.log_dir = "/nonexistent/logs";
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
    machine.probe = std::unique_ptr<engine::Probe>(card_);
    engine::Options options;
    options.exit_dir = "/nonexistent/exits";
    options.boot_id = "boot";
    engine_.emplace(io_, store_, std::move(machine), std::move(options));
    sessions_.emplace(*engine_, keepers_, options_);
    engine_->add(*sessions_);
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
    engine_->wake_capabilities();
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
  LeaseId submit(Session session, Bytes vram = GiB) {
    core::Submit submit;
    submit.lease.uid = session.uid;
    submit.lease.user = submit.lease.tenant = session.user;
    submit.lease.consumer = "session";
    submit.lease.tag = session.tag();
    submit.lease.vram = vram;
    submit.lease.ttl = session.request.ttl;
    submit.lease.owner.kind = core::OwnerKind::token;
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
  const Session& at(std::uint64_t number) const { return *sessions_->find(number); }
  State state(std::uint64_t number) const { return at(number).progress.state; }
  const core::Lease& lease(std::uint64_t number) const { return *engine_->find(at(number).progress.lease); }
  Status close(std::uint64_t number, bool park = true, std::uint32_t by = 1000) {
    const Status done = sessions_->close(at(number), park, by);
    settle();
    return done;
  }

  boost::asio::io_context io_{1};
  store::MemoryStore store_;
  KeptOrders keepers_;
  Options options_;
  Activity activity_{Activity::State::idle, {}};
  ManualClock* clock_ = nullptr;  // these two belong to the engine
  EmptyCard* card_ = nullptr;
  Time now_{1'795'780'800'000'000'000};
  std::int64_t monotonic_ns_ = 0;
  std::optional<engine::Engine> engine_;
  std::optional<Sessions> sessions_;
};

TEST_F(SessionsTest, IsRenewedOnlyIfThereWasActivity) {
  const std::uint64_t number = open();
  ASSERT_EQ(state(number), State::active);
  const Time end = *lease(number).expires_at;
  activity_ = {Activity::State::busy, clock_->now() + 1s};
  pass(55s);
  EXPECT_EQ(*lease(number).expires_at, end) << "it is too early";
  pass(30s);
  EXPECT_GT(*lease(number).expires_at, end);
  activity_ = {Activity::State::idle, clock_->now() - 60s};
  pass(120s);
  EXPECT_EQ(state(number), State::closed);
  EXPECT_EQ(at(number).progress.end, End::expired);
}

TEST_F(SessionsTest, UnknownActivityCountsAsActivity) {
  activity_.state = Activity::State::unknown;
  const std::uint64_t number = open();
  pass(500s);
  EXPECT_EQ(state(number), State::active);
}

TEST_F(SessionsTest, ATouchAtTheLastMomentRenews) {
  const std::uint64_t number = open();
  pass(90s);
  ASSERT_TRUE(sessions_->touch(at(number)));
  settle();
  pass(50s);
  EXPECT_EQ(state(number), State::active);
}

TEST_F(SessionsTest, EndsBeforeItsLeaseWould) {
  const std::uint64_t number = open();
  pass(96s, 1s);
  EXPECT_NE(state(number), State::active);
  EXPECT_EQ(lease(number).end_reason, core::EndReason::released) << "the session ended it, not the core";
}

TEST_F(SessionsTest, NobodyExpiresInAClockGap) {
  const std::uint64_t number = open();
  advance(1h);  // many times to live
  EXPECT_EQ(state(number), State::active);
  ASSERT_TRUE(sessions_->touch(at(number)));
  pass(20s);
  EXPECT_EQ(state(number), State::active);
  restart(1h);
  EXPECT_EQ(state(number), State::active);
  pass(200s);
  EXPECT_EQ(state(number), State::closed) << "time counts again";
}

TEST_F(SessionsTest, AnEndWithoutAProgramClosesIt) {
  const std::uint64_t number = open();
  ASSERT_TRUE(close(number));
  pass(5s);
  EXPECT_EQ(state(number), State::closed);
  EXPECT_EQ(at(number).progress.end, End::closed);
  EXPECT_EQ(sessions_->touch(at(number)).error().code, Code::LeaseExpired);
  EXPECT_EQ(sessions_->checkpoint(at(number)).error().code, Code::BadRequest) << "it has no command";
  EXPECT_TRUE(close(number)) << "again";
}

TEST_F(SessionsTest, AnAdminsEndIsARevocation) {
  const std::uint64_t number = open();
  ASSERT_TRUE(close(number, true, 0));
  pass(5s);
  EXPECT_EQ(at(number).progress.end, End::revoked);
}

TEST_F(SessionsTest, TheIdleRuleEndsIt) {
  const std::uint64_t number = open();
  EXPECT_FALSE(sessions_->end_idle(LeaseId{99}, "idle"));
  EXPECT_TRUE(sessions_->end_idle(at(number).progress.lease, "it did nothing for 1 h"));
  settle();
  pass(5s);
  EXPECT_EQ(at(number).progress.end, End::idle);
  EXPECT_EQ(at(number).progress.why, "it did nothing for 1 h");
}

TEST_F(SessionsTest, WaitsForMemoryAndClaimsItsOffer) {
  const std::uint64_t first = open(1000s, 20 * GiB), second = open(1000s, 20 * GiB);
  engine_->not_held(lease(second).id);
  ASSERT_EQ(state(second), State::queued);
  ASSERT_TRUE(close(first));
  pass(5s);
  EXPECT_EQ(state(second), State::active);
}

TEST_F(SessionsTest, AWaitingSessionIsClosedAtOnce) {
  const std::uint64_t first = open(1000s, 20 * GiB), second = open(1000s, 20 * GiB);
  ASSERT_TRUE(close(second));
  pass(5s);
  EXPECT_EQ(state(second), State::closed);
  EXPECT_EQ(state(first), State::active);
}

TEST_F(SessionsTest, HasALimitOfSessionsThatAreNotClosed) {
  options_.most_sessions = 2;
  restart();
  const std::uint64_t first = open();
  open();
  EXPECT_EQ(sessions_->next_number(1000, "ana").error().code, Code::Quota);
  EXPECT_TRUE(sessions_->next_number(1001, "bea"));
  ASSERT_TRUE(close(first));
  pass(5s);
  EXPECT_TRUE(sessions_->next_number(1000, "ana"));
}

TEST_F(SessionsTest, ContinuousActivityEndsWhileOthersWait) {
  options_.max_continuous = 60s;
  restart();
  activity_ = {Activity::State::busy, clock_->now()};
  const std::uint64_t number = open(1000s, 20 * GiB);
  const auto busy = [&](Duration time) {
    for (Duration left = time; left > Duration{}; left -= 2s) {
      activity_.last = clock_->now();
      advance(2s);
    }
  };
  busy(120s);
  EXPECT_EQ(state(number), State::active) << "nobody waits";
  const std::uint64_t waiter = open(1000s, 20 * GiB);
  busy(20s);
  EXPECT_EQ(at(number).progress.end, End::expired) << "it has no program that can be paused";
  EXPECT_NE(at(number).progress.why.find("preempted for lease-2"), std::string::npos) << at(number).progress.why;
  EXPECT_NE(state(waiter), State::closed);
}

TEST_F(SessionsTest, ABreakEndsContinuousActivity) {
  options_.max_continuous = 60s;
  restart();
  const std::uint64_t number = open(1000s, 20 * GiB);
  activity_ = {Activity::State::idle, clock_->now()};
  pass(70s);
  open(1000s, 20 * GiB);
  activity_ = {Activity::State::busy, clock_->now()};
  pass(20s);
  EXPECT_EQ(state(number), State::active);
}

// --- commands ---

TEST_F(SessionsTest, AStartIsOrderedOnceItIsStored) {
  const std::uint64_t number = sessions_->add(fresh(100s, true)).number;
  EXPECT_TRUE(keepers_.orders.empty());
  settle();
  ASSERT_EQ(keepers_.orders.size(), 1u);
  const auto document = keepers_.document(0);
  EXPECT_EQ(document.at("session"), (nlohmann::json{{"id", "session-1"}, {"start", 1}}));
  EXPECT_EQ(document.at("request").at("tag"), "session-1");
  EXPECT_EQ(document.at("request").at("ttl_seconds"), 100);
  EXPECT_FALSE(document.contains("program"));
  pass(5s);
  EXPECT_EQ(keepers_.orders.size(), 1u);
  EXPECT_TRUE(sessions_->may_submit(1000, number, 1));
  EXPECT_EQ(sessions_->may_submit(1000, number, 2).error().code, Code::Stale);
  EXPECT_EQ(sessions_->may_submit(1001, number, 1).error().code, Code::NotFound);
  restart();
  ASSERT_EQ(keepers_.orders.size(), 2u) << "nobody knows whether the first keeper lives";
  EXPECT_EQ(sessions_->may_submit(1000, number, 1).error().code, Code::Stale);
  EXPECT_TRUE(sessions_->may_submit(1000, number, 2));
}

TEST_F(SessionsTest, AStartThatFailsIsTold) {
  const std::uint64_t number = sessions_->add(fresh(100s, true)).number;
  settle();
  ASSERT_TRUE(sessions_->report(at(number), {.start = 1, .failed = "'train' was not found", .exit_status = 127}));
  settle();
  EXPECT_EQ(state(number), State::closed);
  EXPECT_EQ(at(number).progress.end, End::failed);
  EXPECT_EQ(sessions_->touch(at(number)).error().code, Code::Disconnected);
  ASSERT_TRUE(sessions_->resume(at(number)));
  settle();
  EXPECT_EQ(keepers_.orders.size(), 2u);
  keepers_.answers.at(1)(unavailable("the actor is away"));
  EXPECT_EQ(state(number), State::closed);
  EXPECT_NE(at(number).progress.why.find("the actor is away"), std::string::npos);
}

TEST_F(SessionsTest, AStartIsClosedBeforeItHasALease) {
  const std::uint64_t number = sessions_->add(fresh(100s, true)).number;
  settle();
  ASSERT_TRUE(close(number));
  EXPECT_EQ(state(number), State::closed);
  EXPECT_EQ(sessions_->may_submit(1000, number, 1).error().code, Code::Stale);
}

// --- checkpoints ---

TEST_F(SessionsTest, ACheckpointIsARunWithANumber) {
  const std::uint64_t number = open(1000s, GiB, {"save"});
  ASSERT_TRUE(sessions_->checkpoint(at(number)));
  settle();
  ASSERT_EQ(keepers_.orders.size(), 1u);
  const auto document = keepers_.document(0);
  EXPECT_EQ(document.at("hook"), (nlohmann::json{{"number", 1}, {"timeout_ms", 60000}}));
  EXPECT_EQ(document.at("arguments"), nlohmann::json{"save"});
  EXPECT_TRUE(sessions_->checkpoint(at(number))) << "one runs already";
  settle();
  EXPECT_EQ(keepers_.orders.size(), 1u);
  EXPECT_EQ(sessions_->report(at(number), {.checkpoint = 2, .locator = "x"}).error().code, Code::Stale);
  ASSERT_TRUE(sessions_->report(at(number), {.checkpoint = 1, .locator = "/data/1"}));
  settle();
  EXPECT_EQ(at(number).progress.checkpoint.locator, "/data/1");
  EXPECT_EQ(sessions_->report(at(number), {.checkpoint = 1, .locator = "y"}).error().code, Code::Stale);
  ASSERT_TRUE(sessions_->checkpoint(at(number)));
  settle();
  const auto environment = keepers_.document(1).at("environment").get<std::vector<std::string>>();
  EXPECT_EQ(std::count(environment.begin(), environment.end(), "SUBLET_CHECKPOINT=/data/1"), 1);
  ASSERT_TRUE(sessions_->report(at(number), {.checkpoint = 2, .problem = "no space left"}));
  EXPECT_EQ(at(number).progress.checkpoint.locator, "/data/1") << "the last good one";
  EXPECT_EQ(at(number).progress.checkpoint.problem, "no space left");
}

TEST_F(SessionsTest, ARunThatNeverReportsHasFailed) {
  const std::uint64_t number = open(1000s, GiB, {"save"});
  ASSERT_TRUE(close(number));
  EXPECT_EQ(state(number), State::closed) << "no program runs that could save anything";
  const std::uint64_t other = open(1000s, GiB, {"save"});
  ASSERT_TRUE(sessions_->checkpoint(at(other)));
  settle();
  pass(60s);
  EXPECT_TRUE(at(other).progress.checkpoint.running);
  pass(20s);
  EXPECT_FALSE(at(other).progress.checkpoint.running);
  EXPECT_NE(at(other).progress.checkpoint.problem.find("did not report"), std::string::npos);
}

TEST_F(SessionsTest, ARunIsNotOrderedAgainByTheNextDaemon) {
  const std::uint64_t number = open(1000s, GiB, {"save"});
  ASSERT_TRUE(sessions_->checkpoint(at(number)));
  settle();
  restart();
  EXPECT_EQ(keepers_.orders.size(), 1u);
  ASSERT_TRUE(sessions_->report(at(number), {.checkpoint = 1, .locator = "/data/1"}));
  EXPECT_EQ(at(number).progress.checkpoint.locator, "/data/1");
}

TEST_F(SessionsTest, ARunWhoseKeeperWasKilledHasFailed) {
  const std::uint64_t number = open(1000s, GiB, {"save"});
  ASSERT_TRUE(sessions_->checkpoint(at(number)));
  settle();
  keepers_.answers.at(0)(ProcessRef{1 << 22, 1});  // no such process lives
  pass(30s);
  EXPECT_FALSE(at(number).progress.checkpoint.running);
  EXPECT_EQ(at(number).progress.checkpoint.problem, "its keeper was killed");
}

TEST_F(SessionsTest, ACheckpointIsMadeAgainAndAgain) {
  Session session = fresh(1000s);
  session.request.checkpoint = {"save"};
  session.request.checkpoint_every = 30s;
  const std::uint64_t number = session.number;
  submit(session);
  pass(25s);
  EXPECT_EQ(at(number).progress.checkpoint.number, 0u);
  pass(10s);
  ASSERT_EQ(at(number).progress.checkpoint.number, 1u);
  ASSERT_TRUE(sessions_->report(at(number), {.checkpoint = 1}));
  pass(35s);
  EXPECT_EQ(at(number).progress.checkpoint.number, 2u);
}

// --- records ---

TEST_F(SessionsTest, RestartsKeepEverythingButForgetOldRecords) {
  std::uint64_t last = 0;
  for (int i = 0; i < 105; ++i) {
    last = open();
    ASSERT_TRUE(close(last));
    advance(1s);
  }
  ASSERT_EQ(state(last), State::closed);
  EXPECT_LE(sessions_->all().size(), 101u);
  EXPECT_EQ(sessions_->find(1), nullptr);
  const std::uint64_t lives = open(1000s);
  restart();
  EXPECT_EQ(state(lives), State::active);
  EXPECT_EQ(at(lives).progress.lease, lease(lives).id);
  EXPECT_EQ(sessions_->find(1), nullptr);
  EXPECT_EQ(state(last), State::closed);
}

TEST_F(SessionsTest, ALookCostsOnlyTheSessionsThatAreDue) {
  options_.most_sessions = 1000;
  options_.max_continuous = Duration{};
  int looks = 0;
  options_.activity = [&looks](LeaseId) {
    ++looks;
    return Activity{Activity::State::busy, {}};
  };
  restart();
  for (int i = 0; i < 300; ++i) open(1h, MiB);
  looks = 0;
  for (int i = 0; i < 100; ++i) advance(1s);
  EXPECT_EQ(looks, 0) << "none is due";
}

}  // namespace
}  // namespace sublet::sessions
