// SPDX-License-Identifier: Apache-2.0
// This program reads a store of every version from the first schema on. Afterwards the schema of the file equals that
// of a new store. An earlier store is refused and left unchanged.
#include "store/migrations.h"

#include "store/secret.h"
#include "store/sqlite_store.h"
#include "store/test_support.h"

#include <fmt/format.h>

namespace sublet::store::test {
namespace {

std::string schema_of(const std::filesystem::path& path) {
  auto database = Database::open(path.string(), Database::Mode::existing);
  if (!database) return database.error().detail;
  const auto text =
      (*database)->text("SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema ORDER BY name)");
  const auto version = (*database)->integer("PRAGMA user_version");
  return text && version ? fmt::format("{} {}", *version, *text) : "unreadable";
}

void expect_parked(const core::Lease& lease) {
  ASSERT_TRUE(lease.parking);
  const core::Parking& parking = *lease.parking;
  EXPECT_EQ(lease.reserved_each(), 64 * MiB);
  EXPECT_EQ(lease.parked_for, std::chrono::seconds(5));
  EXPECT_EQ(lease.parked_at, Time{1795276804000000000});
  EXPECT_EQ(parking.host_bytes, 5 * GiB);
  EXPECT_EQ(parking.cause.kind, core::PauseCauseKind::tier);
  EXPECT_EQ(parking.cause.preemptor, LeaseId{2});
  EXPECT_EQ(parking.cause.args.bytes("asked"), 8 * GiB);
  EXPECT_TRUE(parking.measured && parking.resume_requested && parking.told && !parking.then_stop);
  const std::vector<ProcessRef> noted{{4321, 987654}, {4322, 987655}};
  EXPECT_EQ(parking.locked_processes, noted);
  ASSERT_EQ(parking.held_when_paused.size(), 2U);
  const core::HeldWhenPaused first{7 * GiB, {{noted[0], 4 * GiB}, {noted[1], 3 * GiB}}, 4 * MiB};
  EXPECT_EQ(parking.held_when_paused[0], first);
  EXPECT_EQ(parking.held_when_paused[1], (core::HeldWhenPaused{.all = GiB}));
  EXPECT_EQ(parking.orphaned_since, Time{1795276803700000000});
}

void expect_lease(const core::Lease& lease) {
  EXPECT_EQ(lease.state, core::LeaseState::paused);
  expect_parked(lease);
  ASSERT_TRUE(lease.cooperation);
  EXPECT_EQ(lease.cooperation->way, core::CooperationWay::signal);
  EXPECT_EQ(lease.cooperation->residue, 32 * MiB);
  EXPECT_EQ(lease.cooperation->process, (ProcessRef{4325, 987660}));
  EXPECT_EQ(lease.cooperation->resume_signal, 12);
  EXPECT_EQ(lease.unfit, (core::Obstacle{core::ObstacleCode::not_parkable, "process 4321 uses managed memory"}));
  EXPECT_EQ(lease.sized, (core::Sized{2 * GiB, Time{1795276803500000000}, std::chrono::seconds(4)}));
  EXPECT_EQ(lease.ceiling, 7 * GiB);
  EXPECT_EQ(lease.soft_limit, 6 * GiB);
  EXPECT_EQ(lease.vram, 6 * GiB);
  EXPECT_EQ(lease.asked_vram, 6 * GiB);
  EXPECT_EQ(lease.booked.size(), 2U);
  EXPECT_EQ(lease.devices.size(), 2U);
  EXPECT_EQ(lease.device_count, 2);
  EXPECT_EQ(lease.resize, (core::Upgrade{8 * GiB, Time{1795276802000000000}}));
  EXPECT_EQ(lease.owner.process, (ProcessRef{4321, 987654}));
  EXPECT_EQ(lease.owner.inode, 42001U);
  EXPECT_EQ(lease.granted_at, Time{1795276801000000000});
  EXPECT_TRUE(lease.resumed_at);
  EXPECT_EQ(lease.token, hash_secret("t0k3n-1"));
}

void expect_others(const Loaded& loaded) {
  const core::Lease& queued = loaded.leases[1];
  EXPECT_EQ(queued.state, core::LeaseState::queued);
  EXPECT_EQ(queued.tier, core::Tier::interactive);
  EXPECT_TRUE(queued.nameless && queued.held_back_at);
  EXPECT_EQ(queued.preemption_request, (core::PreemptionRequest{1000, true, Time{1795276801700000000}}));
  EXPECT_EQ(loaded.leases[2].exit_status, 0);
  EXPECT_TRUE(loaded.leases[2].kept_until);
}

void expect_rest(const Loaded& loaded) {
  ASSERT_EQ(loaded.rows.size(), 1U);
  EXPECT_EQ(loaded.rows[0].kind, "approval");
  EXPECT_EQ(loaded.rows[0].key, "3");
  EXPECT_TRUE(loaded.rows[0].data.starts_with(R"({"subject":"user:ada",)")) << loaded.rows[0].data;
  EXPECT_EQ(loaded.grants.size(), 1U);
  EXPECT_EQ(loaded.last_id, 9U);
  EXPECT_EQ(loaded.boot_id, "6f9619ff-8b86-d011-b42d-00cf4fc964ff");
  EXPECT_EQ(loaded.history.at(adas).peak_used, 7 * GiB);
  EXPECT_EQ(loaded.history.at(adas).runs, (std::vector<Duration>{std::chrono::seconds(60), std::chrono::seconds(70)}));
  ASSERT_EQ(loaded.moves.size(), 2U);
  EXPECT_EQ(loaded.moves[0].consumer, adas);
  EXPECT_EQ(loaded.moves[0].sample, (core::MoveSample{6 * GiB, std::chrono::milliseconds(3900)}));
  EXPECT_EQ(loaded.moves[1].move, core::Move::resume);
  EXPECT_EQ(loaded.moves[1].device, "GPU-8f1c");
  const core::LearnedRecord record{{1000, "serve"}, core::PauseMethod::cooperative, {5, 3}};
  EXPECT_EQ(loaded.records, std::vector{record});
  EXPECT_EQ(loaded.tokens.size(), 1U);
  EXPECT_EQ(loaded.last_token, 4U);
  EXPECT_EQ(loaded.last_event, 42U);
  EXPECT_EQ(loaded.life, "5eed0001");
}

TEST(Migrations, AreNumberedWithoutAGap) {
  int expected = migrations().front().version;
  for (const Migration& migration : migrations()) EXPECT_EQ(migration.version, expected++) << migration.name;
}

TEST(Migrations, ReadEveryVersion) {
  TempDir dir;
  const auto fresh = dir / "fresh.db";
  ASSERT_TRUE(SqliteStore(fresh).open({}));
  for (const Migration& migration : migrations()) {
    SCOPED_TRACE(migration.name);
    const auto path = dir.path() / fmt::format("v{}.db", migration.version);
    ASSERT_NO_FATAL_FAILURE(make_old_store(path, migration.version));
    for (int restart = 0; restart < 2; ++restart) {
      SqliteStore store(path);
      News news;
      const auto loaded = store.open(news.events());
      ASSERT_TRUE(loaded) << loaded.error().detail;
      ASSERT_EQ(loaded->leases.size(), 3U) << "one paused, one queued, one that settles";
      expect_lease(loaded->leases[0]);
      expect_others(*loaded);
      expect_rest(*loaded);
      const auto reasons = ask(store, [](Reader& reader) { return reader.reasons(LeaseId{2}); });
      ASSERT_EQ(reasons->size(), 1U);
      EXPECT_EQ(reasons->front().kind, core::ReasonKind::queued);
      EXPECT_EQ(reasons->front().args.bytes("free"), 6 * GiB);
      EXPECT_TRUE(store.maybe_remembered(1000, hash_secret("run-1")));
    }
    EXPECT_EQ(schema_of(path), schema_of(fresh));
  }
}

TEST(Migrations, AreWrittenToByTheNewProgramAtOnce) {
  TempDir dir;
  ASSERT_NO_FATAL_FAILURE(make_old_store(dir / "store.db", migrations().front().version));
  SqliteStore store(dir / "store.db");
  News news;
  ASSERT_TRUE(store.open(news.events()));
  EXPECT_TRUE(news.wait_for(store.intend(step(1'800'000'000'000))));
  EXPECT_TRUE(store.maybe_remembered(1000, "key-1800000000000"));
}

TEST(Migrations, RefuseAnEarlierStoreAndLeaveItAlone) {
  TempDir dir;
  const auto path = dir / "store.db";
  {
    auto database = Database::open(path.string(), Database::Mode::create);
    ASSERT_TRUE(database);
    const char* script = "PRAGMA application_id = 1396853844; PRAGMA user_version = 24; CREATE TABLE leases (id)";
    ASSERT_TRUE((*database)->run(script));
  }
  const std::string before = read_file(path);
  SqliteStore store(path);
  News news;
  const auto opened = store.open(news.events());
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().detail.find("has version 24, and this program reads versions from 25"), std::string::npos)
      << opened.error().detail;
  EXPECT_NE(opened.error().hint.find("move the file away"), std::string::npos);
  store.close();
  EXPECT_EQ(read_file(path), before);
}

}  // namespace
}  // namespace sublet::store::test
