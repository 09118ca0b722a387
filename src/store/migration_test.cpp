// SPDX-License-Identifier: Apache-2.0
// This version reads a store of any earlier version. Afterwards its schema equals that of a new store.
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

// The sentence of an earlier version is a note.
void expect_cause(const core::PauseCause& cause, int version) {
  EXPECT_EQ(cause.kind, version >= 20 ? core::PauseCauseKind::tier : core::PauseCauseKind::note);
  EXPECT_EQ(cause.preemptor, version >= 20 ? LeaseId{2} : LeaseId{});
  if (version < 20) EXPECT_EQ(core::text_of(cause), "its owner asked");
  else EXPECT_EQ(cause.args.bytes("asked"), 8 * GiB);
}

void expect_reasons(const std::vector<core::Reason>& reasons, int version) {
  ASSERT_EQ(reasons.size(), 1U);
  EXPECT_EQ(core::code(reasons[0]), "queued");
  EXPECT_EQ(reasons[0].kind, version >= 20 ? core::ReasonKind::queued : core::ReasonKind::note);
  if (version < 20) EXPECT_EQ(core::text_of(reasons[0]), "8.0 GiB asked, 2.0 GiB short");
  else EXPECT_EQ(reasons[0].args.bytes("free"), 6 * GiB);
}

void expect_parked(const core::Parking& parking, int version) {
  EXPECT_EQ(parking.host_bytes, 5 * GiB);
  expect_cause(parking.cause, version);
  EXPECT_TRUE(parking.measured && parking.resume_requested && !parking.then_stop);
  const std::vector<ProcessRef> noted{{4321, 987654}, {4322, 987655}};
  EXPECT_EQ(parking.locked_processes, version >= 12 ? std::optional(noted) : std::nullopt)
      << "whom an earlier version parked nobody knows";
  ASSERT_EQ(parking.held_when_paused.size(), version >= 4 ? 2U : 1U);
  if (version < 13) {
    for (const core::HeldWhenPaused& its : parking.held_when_paused)
      EXPECT_EQ(its, (core::HeldWhenPaused{.all = 6 * GiB})) << "all it may hold";
    EXPECT_FALSE(parking.before_top);
    return;
  }
  const core::HeldWhenPaused first{7 * GiB, {{noted[0], 4 * GiB}, {noted[1], 3 * GiB}}, 4 * MiB};
  EXPECT_EQ(parking.held_when_paused[0], first);
  EXPECT_EQ(parking.held_when_paused[1], (core::HeldWhenPaused{GiB, {}, {}, 2 * GiB, 1536 * MiB}));
  EXPECT_EQ(parking.before_top, (core::Entered{core::PauseMethod::cooperative, 4 * GiB, true}));
  EXPECT_EQ(parking.orphaned_since, version >= 19 ? std::optional(Time{1795276803700000000}) : std::nullopt);
}

core::PreemptionRequest word_in(int version) {
  return {1000, true, version >= 13 ? std::optional(Time{1795276801700000000}) : std::nullopt};
}

std::optional<core::UnfitFor> unfit_in(int version) {
  if (version < 15) return std::nullopt;
  return core::UnfitFor{core::Unfit::never, "process 4321 uses managed memory"};
}

std::optional<core::Sized> sized_in(int version) {
  if (version < 18) return std::nullopt;
  return core::Sized{2 * GiB, Time{1795276803500000000}, std::chrono::seconds(4)};
}

void expect_time_parked(const core::Lease& lease, int version) {
  EXPECT_EQ(lease.parked_for, version >= 16 ? std::chrono::seconds(5) : std::chrono::seconds(0));
  const auto asked = lease.parking ? std::optional(lease.parking->since) : std::nullopt;
  EXPECT_EQ(lease.parked_at, version >= 16 ? Time{1795276804000000000} : asked);
}

void expect_moves(const std::vector<core::LearnedMove>& moves, int version) {
  ASSERT_EQ(moves.size(), version >= 10 ? 2U : 0U);
  if (version < 10) return;
  EXPECT_EQ(moves[0].consumer, adas);
  EXPECT_EQ(moves[0].sample, (core::MoveSample{6 * GiB, std::chrono::milliseconds(3900)}));
  EXPECT_EQ(moves[1].move, core::Move::resume);
  EXPECT_EQ(moves[1].device, version >= 14 ? "GPU-8f1c" : "");
}

void expect_rows(const std::vector<CapabilityRow>& rows, int version) {
  ASSERT_EQ(rows.size(), version >= 22 ? 1U : 0U);
  if (version < 22) return;
  EXPECT_EQ(rows[0].kind, "approval");
  EXPECT_EQ(rows[0].key, "3");
  EXPECT_TRUE(rows[0].data.starts_with(R"({"subject":"user:ada",)")) << rows[0].data;
}

TEST(Migrations, AreNumberedWithoutAGap) {
  int expected = 0;
  for (const Migration& migration : migrations()) EXPECT_EQ(migration.version, ++expected) << migration.name;
}

TEST(Migrations, ReadEveryEarlierVersion) {
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
      ASSERT_EQ(loaded->leases.size(), 3U) << "one active, one queued, one that settles";
      const core::Lease& active = loaded->leases[0];
      EXPECT_EQ(active.state, migration.version >= 8 ? core::LeaseState::paused : core::LeaseState::active);
      ASSERT_EQ(active.parking.has_value(), migration.version >= 8);
      if (active.parking) {
        expect_parked(*active.parking, migration.version);
        EXPECT_EQ(active.reserved_each(), 64 * MiB);
      }
      ASSERT_EQ(active.cooperation.has_value(), migration.version >= 9);
      if (active.cooperation) {
        EXPECT_TRUE(active.parking->told);
        EXPECT_EQ(active.cooperation->way, core::CooperationWay::signal);
        EXPECT_EQ(active.cooperation->residue, 32 * MiB);
        EXPECT_EQ(active.cooperation->process, (ProcessRef{4325, 987660}));
        EXPECT_EQ(active.cooperation->resume_signal, 12);
      }
      EXPECT_EQ(active.unfit, unfit_in(migration.version));
      expect_time_parked(active, migration.version);
      EXPECT_EQ(active.sized, sized_in(migration.version));
      EXPECT_EQ(active.ceiling, migration.version >= 21 ? 7 * GiB : Bytes{});
      EXPECT_EQ(active.soft_limit, migration.version >= 21 ? 6 * GiB : Bytes{});
      EXPECT_EQ(loaded->leases[2].kept_until.has_value(), migration.version >= 21);
      EXPECT_EQ(loaded->programs.size(), migration.version >= 21 ? 1U : 0U);
      expect_rows(loaded->rows, migration.version);
      EXPECT_EQ(loaded->leases[1].nameless, migration.version >= 18);
      EXPECT_EQ(loaded->grants.size(), migration.version >= 9 ? 1U : 0U);
      EXPECT_EQ(active.vram, 6 * GiB);
      EXPECT_EQ(active.booked.size(), migration.version >= 3 ? 2U : 0U);
      EXPECT_EQ(active.devices.size(), migration.version >= 4 ? 2U : 1U);
      EXPECT_EQ(active.device_count, migration.version >= 4 ? 2 : 1);
      EXPECT_EQ(active.asked_vram, 6 * GiB);
      EXPECT_EQ(active.resize.has_value(), migration.version >= 4);
      EXPECT_EQ(active.owner.process, (ProcessRef{4321, 987654}));
      EXPECT_EQ(active.owner.inode, migration.version >= 5 ? 42001U : 0U);
      EXPECT_EQ(active.granted_at, Time{1795276801000000000});
      EXPECT_EQ(loaded->leases[1].state, core::LeaseState::queued);
      EXPECT_EQ(loaded->leases[1].tier, core::Tier::interactive);
      EXPECT_EQ(loaded->leases[2].exit_status, 0);
      EXPECT_EQ(loaded->last_id, 9U);
      EXPECT_EQ(loaded->boot_id, "6f9619ff-8b86-d011-b42d-00cf4fc964ff");
      EXPECT_EQ(loaded->history.at(adas).peak_used, 7 * GiB);
      EXPECT_EQ(loaded->history.at(adas).runs,
                (std::vector<Duration>{std::chrono::seconds(60), std::chrono::seconds(70)}));
      const auto reasons = ask(store, [](Reader& reader) { return reader.reasons(LeaseId{2}); });
      expect_reasons(*reasons, migration.version);
      EXPECT_EQ(store.maybe_remembered(1000, hash_secret("run-1")), migration.version >= 2);
      EXPECT_EQ(active.token, hash_secret("t0k3n-1"));
      EXPECT_EQ(loaded->tokens.size(), migration.version >= 7 ? 1U : 0U);
      expect_moves(loaded->moves, migration.version);
      const bool newest = migration.version >= 11;
      EXPECT_EQ(active.resumed_at.has_value(), newest);
      EXPECT_EQ(loaded->leases[1].preemption_request,
                newest ? std::optional(word_in(migration.version)) : std::nullopt);
      const core::LearnedRecord record{{1000, "serve"}, core::PauseMethod::cooperative, {5, 3}};
      // Earlier versions did not store the user, and no lease has this name.
      EXPECT_EQ(loaded->records, std::vector<core::LearnedRecord>(migration.version >= 17 ? 1 : 0, record));
      EXPECT_EQ(loaded->last_token, migration.version >= 7 ? 4U : 0U);
      EXPECT_EQ(loaded->last_event, migration.version >= 6 ? 42U : 0U);
      EXPECT_EQ(loaded->life, migration.version >= 6 ? "5eed0001" : "");
    }
    EXPECT_EQ(schema_of(path), schema_of(fresh));
  }
}

TEST(Migrations, GiveWhatWasLearnedUnderANameToEachUserOfIt) {
  TempDir dir;
  ASSERT_NO_FATAL_FAILURE(make_old_store(dir / "store.db", 16));
  {
    auto database = Database::open((dir / "store.db").string(), Database::Mode::existing);
    ASSERT_TRUE(database);
    const char* change =
        "UPDATE leases SET consumer = 'train' WHERE uid = 1001;"
        "INSERT INTO pause_records VALUES ('train', 'driver', 1, 1, 7);"
        "INSERT INTO moves VALUES (3, 'forgotten', 'driver', 'pause', 5, 6, 7, '')";
    ASSERT_TRUE((*database)->run(change));
  }
  SqliteStore store(dir / "store.db");
  News news;
  const auto loaded = store.open(news.events());
  ASSERT_TRUE(loaded) << loaded.error().detail;
  std::vector<core::Consumer> whose;
  for (const core::LearnedMove& move : loaded->moves) whose.push_back(move.consumer);
  EXPECT_EQ(whose, (std::vector{adas, bobs, adas, bobs, core::Consumer{}}));
  const core::MethodRecord once{1, 1};
  const std::vector<core::LearnedRecord> records{{adas, core::PauseMethod::driver, once},
                                                 {bobs, core::PauseMethod::driver, once}};
  EXPECT_EQ(loaded->records, records);
}

TEST(Migrations, ForgetWhatWasLearnedUnderNamesThatSayNothing) {
  TempDir dir;
  ASSERT_NO_FATAL_FAILURE(make_old_store(dir / "store.db", 17));
  {
    auto database = Database::open((dir / "store.db").string(), Database::Mode::existing);
    ASSERT_TRUE(database);
    ASSERT_TRUE((*database)->run("UPDATE leases SET consumer = iif(id = 3, 'unnamed', 'python3.11') WHERE id >= 3"));
  }
  SqliteStore store(dir / "store.db");
  News news;
  const auto loaded = store.open(news.events());
  ASSERT_TRUE(loaded) << loaded.error().detail;
  EXPECT_TRUE(loaded->history.empty());
}

TEST(Migrations, AreWrittenToByTheNewProgramAtOnce) {
  TempDir dir;
  ASSERT_NO_FATAL_FAILURE(make_old_store(dir / "store.db", 1));
  SqliteStore store(dir / "store.db");
  News news;
  ASSERT_TRUE(store.open(news.events()));
  EXPECT_TRUE(news.wait_for(store.intend(step(1'800'000'000'000))));
  EXPECT_TRUE(store.maybe_remembered(1000, "key-1800000000000"));
}

}  // namespace
}  // namespace sublet::store::test
