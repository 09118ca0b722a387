// SPDX-License-Identifier: Apache-2.0
// A whole store from a damaged file or a foreign writer: every table, with any value in any column that the schema
// allows. The daemon's code loads it, reads it and writes to it, or refuses it as damaged.
#include "core/step.h"
#include "core/testing/validate.h"
#include "enforcer/rules.h"
#include "enforcer/verdict.h"
#include "fuzz.h"
#include "limit/rows.h"
#include "store/sqlite.h"
#include "store/tables.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace sublet;

constexpr std::array names{"leases", "reasons", "remembered", "meta",          "events",
                           "tokens", "grants",  "moves",      "pause_records", "capability_rows"};

std::string base() {
  std::ifstream file(FUZZ_STORE);
  FUZZ_CHECK(file);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The base as SQLite's own bytes: running its SQL for each input would take ten times as long as the rest.
std::pair<const unsigned char*, sqlite3_int64> image() {
  static const auto bytes = [] {
    auto database = store::Database::open(":memory:", store::Database::Mode::create);
    FUZZ_CHECK(database && (*database)->run(base().c_str()));
    sqlite3_int64 size = 0;
    const unsigned char* copy = sqlite3_serialize((*database)->handle(), "main", &size, 0);
    FUZZ_CHECK(copy != nullptr);
    return std::pair(copy, size);
  }();
  return bytes;
}

std::unique_ptr<store::Database> fresh() {
  auto database = store::Database::open(":memory:", store::Database::Mode::create);
  FUZZ_CHECK(database);
  const auto [bytes, size] = image();
  auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(static_cast<sqlite3_uint64>(size)));
  std::copy(bytes, bytes + size, copy);
  constexpr unsigned flags = SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE;
  FUZZ_CHECK(sqlite3_deserialize((*database)->handle(), "main", copy, size, size, flags) == SQLITE_OK);
  return std::move(*database);
}

std::vector<std::string> columns_of(sqlite3* database, const std::string& table) {
  std::vector<std::string> columns;
  const auto add = [](void* all, int, char** values, char**) {
    static_cast<std::vector<std::string>*>(all)->emplace_back(values[1]);
    return 0;
  };
  FUZZ_CHECK(sqlite3_exec(database, ("PRAGMA table_info(" + table + ")").c_str(), add, &columns, nullptr) == SQLITE_OK);
  FUZZ_CHECK(!columns.empty());
  return columns;
}

// Takes numbers and texts from the front of the input. Missing bytes are 0.
class Input {
 public:
  explicit Input(std::string_view text) : text_(text) {}
  bool empty() const { return text_.empty(); }
  unsigned byte() {
    if (text_.empty()) return 0;
    const auto first = static_cast<unsigned char>(text_[0]);
    text_.remove_prefix(1);
    return first;
  }
  // A number of up to eight bytes, a text up to the next line end, or nothing.
  void bind(sqlite3_stmt* statement) {
    const unsigned kind = byte();
    if (kind % 4 == 0) {
      sqlite3_bind_null(statement, 1);
    } else if (kind % 4 == 1) {
      std::uint64_t value = 0;
      for (int i = 0; i < 8; ++i) value = value << 8 | byte();
      sqlite3_bind_int64(statement, 1, static_cast<sqlite3_int64>(value));
    } else if (kind % 4 == 2) {
      sqlite3_bind_int64(statement, 1, kind / 4);
    } else {
      const auto end = std::min(text_.find('\n'), text_.size());
      sqlite3_bind_text(statement, 1, text_.data(), static_cast<int>(end), SQLITE_TRANSIENT);
      text_.remove_prefix(std::min(end + 1, text_.size()));
    }
  }

 private:
  std::string_view text_;
};

// One change for every few bytes: a column of all rows of a table, or a copy of a row that differs in one column. A
// change that violates the schema is skipped.
void damage(sqlite3* database, Input input) {
  for (int changes = 0; !input.empty() && changes < 50; ++changes) {
    const unsigned what = input.byte();
    const std::string table = names[what / 2 % names.size()];
    const auto columns = columns_of(database, table);
    const std::size_t chosen = input.byte() % columns.size();
    std::string sql = "UPDATE OR IGNORE " + table + " SET " + columns[chosen] + " = ?1";
    if (what % 2 == 1) {
      sql = "INSERT OR IGNORE INTO " + table + " SELECT ";
      for (std::size_t i = 0; i < columns.size(); ++i)
        sql += (i > 0 ? ", " : "") + (i == chosen ? std::string("?1") : columns[i]);
      sql += " FROM " + table + " LIMIT 1";
    }
    sqlite3_stmt* statement = nullptr;
    FUZZ_CHECK(sqlite3_prepare_v2(database, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK);
    input.bind(statement);
    (void)sqlite3_step(statement);
    sqlite3_finalize(statement);
  }
}

void read_all(store::Tables& tables, const store::Loaded& loaded) {
  for (const core::Lease& lease : loaded.leases) {
    (void)tables.lease(lease.id);
    (void)tables.by_tag(lease.tag, lease.uid);
    (void)tables.reasons(lease.id);
  }
  (void)tables.ended(100, std::nullopt, std::nullopt);
  (void)tables.events(0, 100);
  (void)tables.each_answer_key([&](std::uint32_t uid, std::string_view key) {
    FUZZ_CHECK(key.size() <= 1 << 20);
    (void)uid;
  });
  (void)tables.remembered(1000, "key");
  for (const store::CapabilityRow& row : loaded.rows) {
    if (const auto verdict = enforcer::verdict_from_row(row)) (void)enforcer::describe(*verdict);
    if (const auto rule = enforcer::rule_from_row(row)) (void)enforcer::to_row(*rule);
    if (const auto credit = limit::from_row(row)) (void)limit::to_row(*credit);
    if (const auto context = limit::context_from_row(row)) (void)limit::to_row(*context);
  }
}

// Loads the store and stores a change, like the daemon.
void go_on(store::Tables& tables, store::Loaded loaded) {
  const core::Rules rules;
  const Time now = loaded.last_time + std::chrono::seconds(1);
  std::map<core::Consumer, core::ConsumerHistory> history;
  for (auto& [consumer, runs] : loaded.history)
    history[consumer] = {std::move(runs.runs), runs.peak_used, runs.last_used};
  std::set<core::Consumer> grants;
  for (core::Grant& grant : loaded.grants) grants.insert({grant.uid, std::move(grant.consumer)});
  auto state = core::State::load(std::move(loaded.leases), std::move(history), loaded.last_id, rules, now, loaded.moves,
                                 std::move(grants), loaded.records);
  core::Plan plan = core::step(state, rules, core::Tick{}, now);
  FUZZ_CHECK(core::testing::validate(state, rules, now).empty());
  std::vector<store::AnswerKey> dropped;
  store::Batch batch{.changed = std::move(plan.changed), .reasons = std::move(plan.reasons), .now = now};
  batch.settled = std::move(plan.settled);
  batch.records = std::move(plan.records);
  if (!tables.begin() || !tables.put(batch, dropped) || !tables.prune(now, 10, dropped)) return;
  (void)tables.commit();
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto database = fresh();
  damage(database->handle(), Input(text_of(data, size)));
  store::Tables tables(std::move(database), {});
  auto loaded = tables.load();
  if (!loaded) {
    FUZZ_CHECK(tables.database().corrupt());  // nothing else can be wrong with it, and then it is set aside
    return 0;
  }
  read_all(tables, *loaded);
  go_on(tables, std::move(*loaded));
  return 0;
}
