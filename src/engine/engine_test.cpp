// SPDX-License-Identifier: Apache-2.0
// The engine's promises about commits: it answers, wakes and announces only durable decisions. A store that fails takes
// back exactly the decisions that were not announced.
#include "engine/engine_test.h"

#include "store/faulty_store.h"

#include <unistd.h>
#include <algorithm>

namespace sublet::engine::test {
namespace {

using store::FaultyStore;

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
  const LeaseId id = world.submit_of_connection();
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
}  // namespace sublet::engine::test
