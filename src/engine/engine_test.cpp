// SPDX-License-Identifier: Apache-2.0
// The engine's promises about commits: it answers, wakes and announces only durable decisions. A store that fails takes
// back exactly the decisions that were not announced.
#include "engine/engine.h"
#include "engine/records.h"

#include "store/faulty_store.h"
#include "store/memory_store.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <unistd.h>
#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace sublet::engine {
namespace {

namespace asio = boost::asio;
using store::FaultyStore;
using store::MemoryStore;

core::Submit wish(std::string tag = {}) {
  core::Submit submit;
  submit.lease.uid = 1000;
  submit.lease.user = submit.lease.tenant = "ana";
  submit.lease.consumer = "train";
  submit.lease.tag = std::move(tag);
  submit.lease.vram = GiB;
  submit.lease.owner.kind = core::OwnerKind::token;
  submit.lease.ttl = std::chrono::hours(1);
  return submit;
}

Answered answer(const core::Lease& lease) { return {202, nlohmann::json{{"id", to_string(lease.id)}}.dump()}; }

// An engine whose helper cannot be started, so that no device is known and every lease queues. The store commits when
// the test says so.
struct World {
  explicit World(store::Store& given, std::string boot_id = "boot", core::Rules rules = {},
                 const std::function<void(Machine&)>& change = {}) {
    MachineOptions machine;
    machine.probe.helper = "/nonexistent/sublet-gpu";
    machine.actor.socket = "/nonexistent/sublet-actor.sock";
    Options options;
    options.rules = std::move(rules);
    options.exit_dir = "/nonexistent/exits";
    options.boot_id = std::move(boot_id);
    Machine real = real_machine(io, machine);
    if (change) change(real);
    engine.emplace(io, given, std::move(real), std::move(options));
    EXPECT_TRUE(engine->start());
    turn();
  }
  ~World() { engine->stop(); }

  // Runs all ready handlers, without waiting for time to pass.
  void turn() {
    io.restart();
    io.poll();
  }

  LeaseId submit(std::string tag = {}, const Remember& remember = {}) {
    LeaseId id;
    const auto answered = engine->request(wish(std::move(tag)), remember, [&](const core::Lease& lease) {
      id = lease.id;
      return answer(lease);
    });
    EXPECT_TRUE(answered) << answered.error().detail;
    return id;
  }

  // Returns the result of durable() for all that was intended; unset while it waits.
  std::shared_ptr<std::optional<bool>> when_durable() {
    auto told = std::make_shared<std::optional<bool>>();
    asio::co_spawn(
        io, [this, told]() -> asio::awaitable<void> { *told = co_await engine->commits().durable(engine->intended()); },
        asio::detached);
    turn();
    return told;
  }

  std::shared_ptr<bool> when_changed(LeaseId id) {
    auto woken = std::make_shared<bool>(false);
    asio::co_spawn(
        io,
        [this, id, woken]() -> asio::awaitable<void> {
          const auto watcher = engine->access().watch(id);
          const auto timer = watcher->second;
          timer->expires_at(std::chrono::steady_clock::time_point::max());
          co_await timer->async_wait(asio::as_tuple(asio::use_awaitable));
          engine->access().unwatch(watcher);
          *woken = true;
        },
        asio::detached);
    turn();
    return woken;
  }

  asio::io_context io{1};
  std::optional<Engine> engine;
};

TEST(Engine, AnAnswerWaitsForItsCommit) {
  MemoryStore store;
  World world(store);
  world.submit();
  const auto told = world.when_durable();
  EXPECT_FALSE(told->has_value());
  store.pump();
  world.turn();
  EXPECT_EQ(*told, true);
  EXPECT_EQ(*world.when_durable(), true) << "nothing is on its way any more";
}

TEST(Engine, WhoWaitsIsWokenOnlyWhenTheChangeIsDurable) {
  MemoryStore store;
  World world(store);
  const LeaseId id = world.submit();
  store.pump();
  world.turn();
  const auto woken = world.when_changed(id);
  const auto released = world.engine->request(core::Release{.lease = id}, {}, answer);
  ASSERT_TRUE(released);
  world.turn();
  EXPECT_FALSE(*woken);
  store.pump();
  world.turn();
  EXPECT_TRUE(*woken);
}

TEST(Engine, AFailedCommitIsToldToWhoeverWaitsAndTakenBack) {
  MemoryStore inner;
  FaultyStore store(inner);
  World world(store);
  const LeaseId kept = world.submit("kept");
  inner.pump();
  world.turn();
  store.fail_commit(1, FaultyStore::Fate::lost, unavailable("no space left"));
  const LeaseId lost = world.submit("lost");
  const auto told = world.when_durable();
  inner.pump();
  world.turn();
  EXPECT_EQ(*told, false);
  EXPECT_NE(core::find(world.engine->state(), kept), nullptr);
  EXPECT_EQ(core::find(world.engine->state(), lost), nullptr) << "it was never acknowledged, and is not there";
  EXPECT_EQ(world.engine->store_problem(), "") << "it was read anew, and works";
  EXPECT_GT(world.submit("again").number, lost.number) << "an id that was given out is not given out again";
}

// A capability with one row.
struct OneRow final : Capability {
  explicit OneRow(Engine& engine)
      : rows(engine, "verdict_changed", [](int) {
          return store::CapabilityRow{"verdict", "1", "{}"};
        }) {}
  void loaded(const store::Loaded&, Time) override { rows.clear(); }
  void happened(const core::Plan&, Time) override {
    EXPECT_FALSE(is_deciding) << "nobody is called back within a decision";
    ++heard;
  }
  Time due(Time) override { return Time::never(); }
  Records<int> rows;
  bool is_deciding = false;
  int heard = 0;
};

TEST(Engine, ATransactionIsOneBatchOrNothing) {
  for (const bool fails : {false, true}) {
    MemoryStore inner;
    FaultyStore store(inner);
    World world(store);
    OneRow capability(*world.engine);
    world.engine->capabilities().add(capability);
    const LeaseId id = world.submit("kept");
    inner.pump();
    world.turn();
    const std::uint64_t before = world.engine->intended();
    if (fails) store.fail_commit(1, FaultyStore::Fate::lost, unavailable("no space left"));
    {
      const Engine::Transaction transaction(*world.engine);
      capability.heard = 0;
      capability.is_deciding = true;
      EXPECT_TRUE(world.engine->decide(core::Amend{.lease = id, .priority = 3}));
      EXPECT_TRUE(world.engine->decide(core::Amend{.lease = id, .tier = core::Tier::batch}));
      capability.is_deciding = false;
      capability.rows.store(1);
      EXPECT_FALSE(capability.rows.is_durable(1));
      EXPECT_EQ(world.engine->intended(), before + 1) << "it will be that batch";
      EXPECT_FALSE(world.engine->commits().is_durable(world.engine->intended()));
      const Remember once{.uid = 1000, .key = "once", .fingerprint = "f"};
      const auto answer = [&] { return Answered{200, std::to_string(capability.heard)}; };
      EXPECT_EQ(world.engine->store_rows("verdict_changed", once, answer)->body, "2")
          << "the answer knows the decisions";
    }
    EXPECT_EQ(world.engine->intended(), before + 1);
    inner.pump();
    world.turn();
    const core::Lease& lease = *core::find(world.engine->state(), id);
    EXPECT_EQ(lease.priority, fails ? 0 : 3);
    EXPECT_EQ(lease.tier, fails ? core::Tier::standard : core::Tier::batch);
    EXPECT_EQ(world.engine->commits().maybe_remembered(1000, "once"), !fails);
    EXPECT_TRUE(capability.rows.is_durable(1)) << "it is stored, or loaded anew";
  }
}

TEST(Engine, WhatBecameDurableWithoutAnybodyKnowingIsFound) {
  MemoryStore inner;
  FaultyStore store(inner);
  World world(store);
  store.fail_commit(1, FaultyStore::Fate::kept, unavailable("the answer of the disk was lost"));
  const LeaseId id = world.submit("kept", {.uid = 1000, .key = "once", .fingerprint = "f"});
  const auto told = world.when_durable();
  inner.pump();
  world.turn();
  EXPECT_EQ(*told, false);
  ASSERT_NE(core::find(world.engine->state(), id), nullptr);
  // The retry finds the stored answer, and makes no second lease.
  ASSERT_TRUE(world.engine->commits().maybe_remembered(1000, "once"));
  std::optional<store::Remembered> found;
  world.engine->commits().remembered(1000, "once", [&](const Result<std::optional<store::Remembered>>& answered) {
    ASSERT_TRUE(answered);
    found = *answered;
  });
  inner.pump();
  world.turn();
  ASSERT_TRUE(found);
  EXPECT_EQ(nlohmann::json::parse(found->body)["id"], to_string(id));
}

TEST(Engine, ARebootEndsWhatWasThere) {
  MemoryStore store;
  LeaseId id;
  {
    World world(store, "one boot");
    id = world.submit();
    store.pump();
    world.turn();
  }
  World world(store, "another boot");
  EXPECT_EQ(core::find(world.engine->state(), id), nullptr);
  ASSERT_NE(world.engine->find(id), nullptr) << "it ended a moment ago";
  EXPECT_EQ(world.engine->find(id)->end_reason, core::EndReason::lost);
  const auto told = world.when_durable();
  EXPECT_FALSE(told->has_value());
  store.pump();
  world.turn();
  EXPECT_EQ(*told, true);
}

TEST(Engine, WhatAnEarlierBootParkedIsParkedNoMore) {
  MemoryStore store;
  core::Lease lease = wish().lease;
  lease.id = {1};
  lease.state = core::LeaseState::paused;
  lease.devices = {"GPU-1"};
  lease.resize = core::Upgrade{2 * GiB, {}};
  lease.parking =
      core::Parking{.since = {}, .cause = {core::PauseCauseKind::owner_request}, .host_bytes = GiB, .residue = {}};
  lease.parking->held_when_paused = {{GiB}};
  ASSERT_TRUE(store.open({}));
  store::Batch batch;
  batch.changed = {lease};
  batch.boot_id = "one boot";
  store.intend(std::move(batch));
  store.pump();
  store.close();
  World world(store, "another boot");
  const core::Lease* lost = world.engine->find(lease.id);
  ASSERT_NE(lost, nullptr);
  EXPECT_EQ(lost->end_reason, core::EndReason::lost);
  EXPECT_FALSE(lost->parking);
  EXPECT_FALSE(lost->resize);
}

TEST(Engine, NothingIsActedOnBeforeTheCommit) {
  char record[] = "/tmp/sublet-engine-XXXXXX";
  ::close(::mkstemp(record));
  MemoryStore store;
  core::Lease lease = wish().lease;
  lease.id = {1};
  lease.state = core::LeaseState::active;
  lease.devices = {"GPU-1"};
  lease.owner = {.kind = core::OwnerKind::process, .process = {1, 1}, .keeper = {}, .exit_record = record, .inode = 0};
  ASSERT_TRUE(store.open({}));
  store.intend({.changed = {lease}, .boot_id = "one boot"});
  store.pump();
  store.close();
  World world(store, "another boot");  // ends the lease, so that its record is not needed any more
  EXPECT_EQ(::access(record, F_OK), 0);
  store.pump();
  world.turn();
  EXPECT_NE(::access(record, F_OK), 0);
  ::unlink(record);
}

TEST(Engine, AConnectionsLeaseIsHeldWhileAnyOfItsSessionsLives) {
  MemoryStore store;
  World world(store);
  core::Submit submit = wish();
  submit.lease.owner.kind = core::OwnerKind::connection;
  submit.lease.ttl.reset();
  submit.held = true;
  LeaseId id;
  ASSERT_TRUE(world.engine->request(submit, {}, [&](const core::Lease& lease) {
    id = lease.id;
    return answer(lease);
  }));
  world.engine->access().hold(id, 1);
  world.engine->access().hold(id, 2);
  world.engine->access().session_closed(1);
  EXPECT_FALSE(core::find(world.engine->state(), id)->unheld_since);
  world.engine->access().session_closed(2);
  EXPECT_TRUE(core::find(world.engine->state(), id)->unheld_since);
  world.engine->access().hold(id, 3);
  EXPECT_FALSE(core::find(world.engine->state(), id)->unheld_since);
}

TEST(Engine, ARefusalChangesNothing) {
  MemoryStore store;
  World world(store);
  world.submit("mine");
  const std::uint64_t intended = world.engine->intended();
  const auto refused = world.engine->request(wish("mine"), {}, answer);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::InUse);
  EXPECT_EQ(world.engine->intended(), intended);
  EXPECT_EQ(world.engine->state().leases.by_id.size(), 1U);
}

// Rings when the test says so.
struct HandAlarm final : machine::Alarm {
  struct Set {
    Duration from_now;
    std::function<void()> ring;
  };
  explicit HandAlarm(std::vector<Set>& all) : all_(all) {}
  void set(Duration from_now, std::function<void()> ring) override { all_.push_back({from_now, std::move(ring)}); }
  void cancel() override {}
  std::vector<Set>& all_;
};

TEST(Engine, SafeModeEndsByItself) {
  MemoryStore store;
  const ManualClock clock;
  core::Rules rules;
  rules.safe_mode = core::SafeMode{clock.now() + std::chrono::hours(1), "it crashed"};
  std::vector<HandAlarm::Set> alarms;
  World world(store, "boot", rules, [&](Machine& machine) {
    machine.clock = std::make_unique<ManualClock>(clock);
    machine.alarm = [&alarms] { return std::make_unique<HandAlarm>(alarms); };
  });
  const auto warned = [&] {
    return !world.engine->warnings().empty() && world.engine->warnings()[0].code == "safe-mode";
  };
  EXPECT_TRUE(warned());
  const auto refused = world.engine->request(wish(), {}, answer);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::Unavailable);
  const auto over = std::ranges::find(alarms, Duration(std::chrono::hours(1)), &HandAlarm::Set::from_now);
  ASSERT_NE(over, alarms.end());
  std::exchange(over->ring, {})();
  EXPECT_FALSE(world.engine->rules().safe_mode || warned());
  world.submit();
}

// The wall clock was set forward by an hour while no daemon ran. The lease that waited longest, parked or not, still
// has waited longest.
TEST(Engine, AJumpOfTheClockChangesNoPlaceInTheQueue) {
  MemoryStore store;
  ManualClock clock;
  core::Lease parked = wish().lease;
  parked.id = {1};
  parked.state = core::LeaseState::paused;
  parked.devices = {"GPU-1"};
  parked.parking = core::Parking{
      .since = clock.now(), .cause = {core::PauseCauseKind::owner_request}, .host_bytes = GiB, .residue = {}};
  parked.parking->held_when_paused = {{GiB}};
  parked.parking->resume_requested = true;
  parked.parking->orphaned_since = clock.now();
  core::Lease waits = wish().lease;
  waits.id = {2};
  waits.queued_at = clock.now() + std::chrono::minutes(10);
  ASSERT_TRUE(store.open({}));
  store::Batch batch;
  batch.now = waits.queued_at;
  batch.changed = {parked, waits};
  batch.boot_id = "boot";
  batch.clock_offset_ns = clock.offset_ns();
  store.intend(std::move(batch));
  store.pump();
  store.close();
  constexpr auto jump = std::chrono::hours(1);
  World world(store, "boot", {},
              [&](Machine& machine) { machine.clock = std::make_unique<ManualClock>(clock.now() + jump); });
  const core::State& state = world.engine->state();
  EXPECT_LT(state.queue.place(parked.id), state.queue.place(waits.id));
  EXPECT_EQ(core::find(state, parked.id)->parking->since, clock.now());
  EXPECT_EQ(core::find(state, parked.id)->parking->orphaned_since, clock.now() + jump) << "that is a time limit";
}

}  // namespace
}  // namespace sublet::engine
