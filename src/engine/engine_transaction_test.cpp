// SPDX-License-Identifier: Apache-2.0
// Transactions: one batch or nothing, clock gaps within one, and the first batch after a start.
#include "engine/engine_test.h"
#include "engine/records.h"

#include "store/faulty_store.h"

namespace sublet::engine::test {
namespace {

using store::FaultyStore;

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

// Calls a function each time it is due.
struct Acts final : Capability {
  explicit Acts(std::function<void(Time)> act) : act_(std::move(act)) {}
  void loaded(const store::Loaded&, Time) override {}
  Time due(Time now) override {
    act_(now);
    return Time::never();
  }
  std::function<void(Time)> act_;
};

// The daemon stands still in the middle of a transaction, for longer than any lease may be without its owner. Calls of
// owners may wait in the socket, so no deadline counts that time.
TEST(Engine, AStandstillWithinATransactionEndsNothing) {
  for (const std::string by : {"a fact", "a request", "a capability"}) {
    MemoryStore store;
    ManualClock* clock = nullptr;
    World world(store, "boot", {}, [&](Machine& machine) {
      auto manual = std::make_unique<ManualClock>();
      clock = manual.get();
      machine.clock = std::move(manual);
    });
    const LeaseId id = world.submit_of_connection();
    world.engine->access().hold(id, 1);
    world.engine->access().session_closed(1);
    const Duration gap = std::chrono::hours(1);
    const auto stand_still = [&] { clock->advance(gap); };
    Time undisturbed{};
    Acts first([&](Time) {
      if (undisturbed == Time{}) stand_still();
    });
    Acts second([&](Time now) {
      if (undisturbed != Time{}) return;
      undisturbed = world.engine->clock().undisturbed_since();
      EXPECT_EQ(now, undisturbed) << "the gap is noticed before the next capability acts";
      EXPECT_TRUE(world.engine->decide(core::Amend{.lease = id, .priority = 3}));
    });
    if (by == "a capability") {
      world.engine->capabilities().add(first);
      world.engine->capabilities().add(second);
      world.engine->call_capabilities();
      world.turn();
      EXPECT_NE(undisturbed, Time{});
    } else {
      const Engine::Transaction transaction(*world.engine);
      stand_still();
      if (by == "a fact") world.engine->tick(core::Tick{});
      else EXPECT_TRUE(world.engine->request(core::Amend{.lease = id, .priority = 3}, {}, answer));
    }
    const core::Lease* lease = core::find(world.engine->state(), id);
    ASSERT_NE(lease, nullptr) << by;
    EXPECT_FALSE(lease->ended()) << by;
    EXPECT_EQ(world.engine->clock().lost_time(), gap) << by;
  }
}

// Closes its only record if the machine was rebooted.
struct ClosesAtReboot final : Capability {
  explicit ClosesAtReboot(Engine& engine)
      : rows(engine, "verdict_changed", [](int) {
          return store::CapabilityRow{"verdict", "1", "closed"};
        }) {}
  void loaded(const store::Loaded& loaded, Time) override {
    rows.clear();
    if (loaded.boot_id == "another boot") return;
    rows.store(1);
  }
  Time due(Time) override { return Time::never(); }
  Records<int> rows;
};

// A kill after the first batch would leave the new boot id without what the reboot means for a record.
TEST(Engine, TheFirstBatchAfterARebootHasTheRowsOfCapabilities) {
  MemoryStore store;
  ASSERT_TRUE(store.open({}));
  store.intend({.boot_id = "one boot"});
  store.pump();
  store.close();
  std::optional<ClosesAtReboot> capability;
  World world(store, "another boot", {}, {}, [&](Engine& engine) {
    capability.emplace(engine);
    engine.capabilities().add(*capability);
  });
  store.pump(1);
  store.crash();
  const auto loaded = store.open({});
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->boot_id, "another boot");
  ASSERT_EQ(loaded->rows.size(), 1U);
  EXPECT_EQ(loaded->rows.front().data, "closed");
}

}  // namespace
}  // namespace sublet::engine::test
