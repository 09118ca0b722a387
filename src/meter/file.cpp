// SPDX-License-Identifier: Apache-2.0
#include "meter/file.h"

#include "base/log.h"
#include "base/text.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

namespace sublet::meter {

using store::Database;
using store::Statement;

namespace {

constexpr std::int64_t application_id = 0x53424d54;  // "SBMT" in the file's header
constexpr double mib = 1048576;
constexpr std::int64_t schema_version = 1;

// A lease's `leased` and `paused` are MiB × ms. Slots are numbers of minutes, hours or days since 1970, other times are
// milliseconds. Amounts are those of deltas.h.
constexpr const char* schema = R"sql(
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE accounts (id INTEGER PRIMARY KEY, user TEXT NOT NULL, tenant TEXT NOT NULL, consumer TEXT NOT NULL,
  session TEXT NOT NULL, UNIQUE (user, tenant, consumer, session));
CREATE TABLE devices (id INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE);
CREATE TABLE leases (lease INTEGER PRIMARY KEY, account INTEGER NOT NULL, created INTEGER NOT NULL, granted INTEGER,
  ended INTEGER, reason TEXT NOT NULL, state TEXT NOT NULL, wanted INTEGER NOT NULL, leased INTEGER NOT NULL,
  paused INTEGER NOT NULL, peak INTEGER NOT NULL, held INTEGER NOT NULL);
CREATE INDEX leases_by_end ON leases (ended);
CREATE TABLE minutes (slot INTEGER, lease INTEGER, device INTEGER, leased INTEGER NOT NULL, paused INTEGER NOT NULL,
  used INTEGER NOT NULL, used_ms INTEGER NOT NULL, busy INTEGER NOT NULL, busy_ms INTEGER NOT NULL,
  idle INTEGER NOT NULL, idle_waited INTEGER NOT NULL, peak INTEGER NOT NULL, waited_ms INTEGER NOT NULL,
  parked INTEGER NOT NULL, moved INTEGER NOT NULL, pauses_caused INTEGER NOT NULL, pauses_suffered INTEGER NOT NULL,
  judged INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (slot, lease, device)) WITHOUT ROWID;
CREATE TABLE hours (slot INTEGER, account INTEGER, device INTEGER, leased INTEGER NOT NULL, paused INTEGER NOT NULL,
  used INTEGER NOT NULL, used_ms INTEGER NOT NULL, busy INTEGER NOT NULL, busy_ms INTEGER NOT NULL,
  idle INTEGER NOT NULL, idle_waited INTEGER NOT NULL, peak INTEGER NOT NULL, waited_ms INTEGER NOT NULL,
  parked INTEGER NOT NULL, moved INTEGER NOT NULL, pauses_caused INTEGER NOT NULL, pauses_suffered INTEGER NOT NULL,
  judged INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (slot, account, device)) WITHOUT ROWID;
CREATE TABLE days (slot INTEGER, account INTEGER, device INTEGER, leased INTEGER NOT NULL, paused INTEGER NOT NULL,
  used INTEGER NOT NULL, used_ms INTEGER NOT NULL, busy INTEGER NOT NULL, busy_ms INTEGER NOT NULL,
  idle INTEGER NOT NULL, idle_waited INTEGER NOT NULL, peak INTEGER NOT NULL, waited_ms INTEGER NOT NULL,
  parked INTEGER NOT NULL, moved INTEGER NOT NULL, pauses_caused INTEGER NOT NULL, pauses_suffered INTEGER NOT NULL,
  judged INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (slot, account, device)) WITHOUT ROWID;
CREATE TABLE device_minutes (slot INTEGER, device INTEGER, leased INTEGER NOT NULL, used INTEGER NOT NULL,
  used_ms INTEGER NOT NULL, busy INTEGER NOT NULL, busy_ms INTEGER NOT NULL, total INTEGER NOT NULL,
  PRIMARY KEY (slot, device)) WITHOUT ROWID;
CREATE TABLE device_hours (slot INTEGER, device INTEGER, leased INTEGER NOT NULL, used INTEGER NOT NULL,
  used_ms INTEGER NOT NULL, busy INTEGER NOT NULL, busy_ms INTEGER NOT NULL, total INTEGER NOT NULL,
  PRIMARY KEY (slot, device)) WITHOUT ROWID;
CREATE TABLE waiting_minutes (slot INTEGER PRIMARY KEY, ms INTEGER NOT NULL);
CREATE TABLE waits (at INTEGER NOT NULL, lease INTEGER NOT NULL, account INTEGER NOT NULL, wanted INTEGER NOT NULL,
  waited INTEGER NOT NULL, granted INTEGER NOT NULL);
CREATE INDEX waits_by_time ON waits (at);
CREATE TABLE pair_minutes (slot INTEGER, waiter INTEGER, holder INTEGER, us INTEGER NOT NULL,
  PRIMARY KEY (slot, waiter, holder)) WITHOUT ROWID;
CREATE TABLE pair_hours (slot INTEGER, waiter INTEGER, holder INTEGER, us INTEGER NOT NULL,
  PRIMARY KEY (slot, waiter, holder)) WITHOUT ROWID;
CREATE TABLE gaps (from_at INTEGER NOT NULL, to_at INTEGER NOT NULL, what TEXT NOT NULL, why TEXT NOT NULL);
)sql";

// Tables and columns that an earlier program does not have, and does not need.
constexpr const char* added = R"sql(
CREATE TABLE IF NOT EXISTS checkpoints (slot INTEGER, lease INTEGER, bytes INTEGER NOT NULL,
  PRIMARY KEY (slot, lease)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS work (slot INTEGER, lease INTEGER, launches INTEGER NOT NULL, copied INTEGER NOT NULL,
  allocated INTEGER NOT NULL, errors INTEGER NOT NULL, charged_us INTEGER NOT NULL, waited_us INTEGER NOT NULL,
  PRIMARY KEY (slot, lease)) WITHOUT ROWID;
)sql";

// "INSERT INTO minutes VALUES (…) ON CONFLICT DO UPDATE SET leased = leased + excluded.leased, …"
std::string adding(std::string_view table, std::string_view keys, std::string_view sums, std::string_view greatest) {
  const auto each = [](std::string_view list, const auto& visit) {
    while (!list.empty()) {
      const auto end = std::min(list.find(' '), list.size());
      visit(list.substr(0, end));
      list.remove_prefix(std::min(end + 1, list.size()));
    }
  };
  std::string columns, marks, conflict, updates;
  const auto column = [&](std::string_view name) {
    columns += fmt::format("{}{}", columns.empty() ? "" : ", ", name);
    marks += marks.empty() ? "?" : ", ?";
  };
  const auto update = [&](const std::string& text) { updates += (updates.empty() ? "" : ", ") + text; };
  each(keys, [&](std::string_view name) {
    column(name);
    conflict += fmt::format("{}{}", conflict.empty() ? "" : ", ", name);
  });
  each(sums, [&](std::string_view name) {
    column(name);
    update(fmt::format("{0} = {0} + excluded.{0}", name));
  });
  each(greatest, [&](std::string_view name) {
    column(name);
    update(fmt::format("{0} = max({0}, excluded.{0})", name));
  });
  return fmt::format("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {}", table, columns, marks,
                     conflict, updates);
}

constexpr std::string_view cell_sums =
    "leased paused used used_ms busy busy_ms judged idle idle_waited waited_ms parked moved pauses_caused "
    "pauses_suffered";
constexpr std::string_view device_sums = "leased used used_ms busy busy_ms";

Status make(Database& database) {
  const std::string script =
      fmt::format("PRAGMA application_id = {};\nBEGIN EXCLUSIVE;\n{}{}\nPRAGMA user_version = {};\nCOMMIT;",
                  application_id, schema, added, schema_version);
  return database.run(script.c_str());
}

Status add_missing(Database& database) {
  if (auto done = database.run(added); !done) return done;
  const auto has = database.integer("SELECT count(*) FROM pragma_table_info('minutes') WHERE name = 'judged'");
  if (!has) return has.error();
  if (*has > 0) return {};
  // The earlier program judged all of a time, or nothing.
  std::string script = "BEGIN EXCLUSIVE;";
  for (const char* table : {"minutes", "hours", "days"})
    script += fmt::format(
        "ALTER TABLE {0} ADD COLUMN judged INTEGER NOT NULL DEFAULT 0;"
        "UPDATE {0} SET judged = leased WHERE busy_ms > 0;",
        table);
  return database.run((script + "COMMIT;").c_str());
}

// "": the file is a database of this version, and whole.
Result<std::string> problem_of(Database& database) {
  const auto id = database.integer("PRAGMA application_id");
  if (!id) return id.error();
  if (*id != application_id) return std::string("it is not a database of the meter");
  const auto version = database.integer("PRAGMA user_version");
  if (!version) return version.error();
  if (*version != schema_version)
    return fmt::format("it has version {}, and this program knows version {}", *version, schema_version);
  const auto verdict = database.text("PRAGMA quick_check(1)");
  if (!verdict || *verdict != "ok") return verdict;
  return std::string();
}

Status prepare(Database& database, bool exists) {
  if (auto done = database.configure(); !done) return done;
  if (auto done = database.run("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"); !done) return done;
  if (!exists) return make(database);
  const auto problem = problem_of(database);
  if (!problem) return problem.error();
  return problem->empty() ? add_missing(database) : Status(database.fail_undecodable(*problem));
}

Result<std::int64_t> id_of(Statement& find, Statement& add) {
  auto found = find.step();
  if (!found) return found.error();
  if (*found) {
    const std::int64_t id = find.integer();
    find.reset();
    return id;
  }
  auto added = add.step();
  if (!added) return added.error();
  const std::int64_t id = add.integer();
  add.reset();
  return id;
}

}  // namespace

Result<std::unique_ptr<File>> File::open(const std::string& path, bool& unusable) {
  std::error_code ignored;
  const bool exists = std::filesystem::file_size(path, ignored) > 0 && !ignored;
  auto database = Database::open(path, exists ? Database::Mode::existing : Database::Mode::create);
  if (!database) return database.error();
  const auto ready = prepare(**database, exists);
  unusable = (*database)->corrupt();
  if (ready) return std::unique_ptr<File>(new File(std::move(*database)));
  if (!exists) {  // half a file would look damaged
    database->reset();
    for (const char* suffix : {"", "-wal", "-journal"}) std::filesystem::remove(path + suffix, ignored);
  }
  return ready.error();
}

File::File(std::unique_ptr<Database> database)
    : database_(std::move(database)),
      find_account_(*database_,
                    "SELECT id FROM accounts WHERE user = ? AND tenant = ? AND consumer = ? AND session = ?"),
      add_account_(*database_,
                   "INSERT INTO accounts (user, tenant, consumer, session) VALUES (?, ?, ?, ?) RETURNING id"),
      find_device_(*database_, "SELECT id FROM devices WHERE uuid = ?"),
      add_device_(*database_, "INSERT INTO devices (uuid) VALUES (?) RETURNING id"),
      lease_account_(*database_, "SELECT account FROM leases WHERE lease = ?"),
      put_lease_(*database_, "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
      put_minute_(*database_, adding("minutes", "slot lease device", cell_sums, "peak")),
      put_hour_(*database_, adding("hours", "slot account device", cell_sums, "peak")),
      put_day_(*database_, adding("days", "slot account device", cell_sums, "peak")),
      put_device_minute_(*database_, adding("device_minutes", "slot device", device_sums, "total")),
      put_device_hour_(*database_, adding("device_hours", "slot device", device_sums, "total")),
      put_checkpoint_(*database_, adding("checkpoints", "slot lease", "bytes", "")),
      put_work_(*database_, adding("work", "slot lease", "launches copied allocated errors charged_us waited_us", "")),
      put_waiting_(*database_, adding("waiting_minutes", "slot", "ms", "")),
      put_wait_(*database_, "INSERT INTO waits VALUES (?, ?, ?, ?, ?, ?)"),
      put_pair_minute_(*database_, adding("pair_minutes", "slot waiter holder", "us", "")),
      put_pair_hour_(*database_, adding("pair_hours", "slot waiter holder", "us", "")),
      extend_gap_(*database_, "UPDATE gaps SET to_at = ? WHERE to_at = ? AND what = ? AND why = ?"),
      put_gap_(*database_, "INSERT INTO gaps VALUES (?, ?, ?, ?)"),
      put_meta_(*database_, "INSERT OR REPLACE INTO meta VALUES (?, ?)"),
      get_meta_(*database_, "SELECT value FROM meta WHERE key = ?") {}

Result<Mark> File::mark() {
  Mark mark;
  std::string event;
  for (const auto& [key, into] : {std::pair{"life", &mark.life}, {"event", &event}, {"state", &mark.state}}) {
    get_meta_ << std::string_view(key);
    const auto found = get_meta_.step();
    if (!found) return found.error();
    if (!*found) continue;
    *into = get_meta_.text();
    get_meta_.reset();
  }
  if (!event.empty()) mark.event = std::strtoull(event.c_str(), nullptr, 10);
  life_ = mark.life;
  return mark;
}

// -------------------------------------------------------------------------------- names

Result<std::int64_t> File::account(const Account& account) {
  if (const auto known = accounts_.find(account); known != accounts_.end()) return known->second;
  find_account_ << account.user << account.tenant << account.consumer << account.session;
  add_account_ << account.user << account.tenant << account.consumer << account.session;
  const auto id = id_of(find_account_, add_account_);
  add_account_.reset();
  if (id) accounts_[account] = *id;
  return id;
}

// 0: amounts without a device.
Result<std::int64_t> File::device(const std::string& uuid) {
  if (uuid.empty()) return std::int64_t{0};
  if (const auto known = devices_.find(uuid); known != devices_.end()) return known->second;
  find_device_ << uuid;
  add_device_ << uuid;
  const auto id = id_of(find_device_, add_device_);
  add_device_.reset();
  if (id) devices_[uuid] = *id;
  return id;
}

Result<std::int64_t> File::account_of(std::uint64_t lease) {
  if (const auto known = lease_accounts_.find(lease); known != lease_accounts_.end()) return known->second;
  lease_account_ << static_cast<std::int64_t>(lease);
  const auto found = lease_account_.step();
  if (!found) return found.error();
  if (!*found) return std::int64_t{0};
  const std::int64_t id = lease_account_.integer();
  lease_account_.reset();
  return id;
}

// -------------------------------------------------------------------------------- writing

Status File::put(const Deltas& deltas, const Mark& mark) {
  if (auto begun = database_->run("BEGIN IMMEDIATE"); !begun) return begun;
  if (auto done = put_all(deltas, mark); !done) {
    (void)database_->run("ROLLBACK");
    accounts_.clear();  // some of them may be gone again
    devices_.clear();
    lease_accounts_.clear();
    return done;
  }
  for (const LeaseRow& row : deltas.leases)
    if (row.ended) lease_accounts_.erase(row.lease.number);
  if (auto done = database_->run("COMMIT"); !done) return done;
  life_ = mark.life;
  // The amounts are durable. A log that cannot be copied into the file now is copied later.
  if (auto done = database_->checkpoint(1000); !done) log::warn("{}", done.error().detail);
  return {};
}

// Another store begins with lease 1 again: the leases of the one before get other numbers.
Status File::renumber() {
  if (auto done = database_->run("CREATE TEMP TABLE step AS SELECT max(lease) - min(lease) + 1 AS size FROM leases");
      !done)
    return done;
  for (const char* table : {"leases", "minutes", "waits", "checkpoints", "work"}) {
    const std::string sql = fmt::format(
        "UPDATE {} SET lease = lease - (SELECT size FROM step) WHERE "
        "(SELECT size FROM step) IS NOT NULL",
        table);
    if (auto done = database_->run(sql.c_str()); !done) return done;
  }
  lease_accounts_.clear();
  return database_->run("DROP TABLE step");
}

Status File::put_all(const Deltas& deltas, const Mark& mark) {
  if (!life_.empty() && mark.life != life_) {
    if (auto done = renumber(); !done) return done;
  }
  for (const LeaseRow& row : deltas.leases)
    if (auto done = put_lease(row); !done) return done;
  if (auto done = put_cells(deltas); !done) return done;
  if (auto done = put_devices(deltas); !done) return done;
  if (auto done = put_waits(deltas); !done) return done;
  if (auto done = put_pairs(deltas); !done) return done;
  if (auto done = put_gaps(deltas); !done) return done;
  if (auto done = put_checkpoints(deltas); !done) return done;
  if (auto done = put_work(deltas); !done) return done;
  const std::string event = fmt::format("{}", mark.event);
  for (const auto& [key, value] : {std::pair{"life", &mark.life}, {"event", &event}, {"state", &mark.state}}) {
    put_meta_ << std::string_view(key) << *value;
    if (auto done = put_meta_.run(); !done) return done;
  }
  return {};
}

Status File::put_lease(const LeaseRow& row) {
  const auto id = account(row.account);
  if (!id) return id.error();
  lease_accounts_[row.lease.number] = *id;
  put_lease_ << static_cast<std::int64_t>(row.lease.number) << *id << row.created << row.granted << row.ended
             << row.end_reason << core::to_string(row.state) << row.wanted
             << static_cast<std::int64_t>(row.leased / mib) << static_cast<std::int64_t>(row.paused / mib) << row.peak
             << row.held;
  return put_lease_.run();
}

Status File::put_cell(Statement& into, Ms slot, std::int64_t who, std::int64_t device, const Cell& cell) {
  into << slot << who << device << cell.leased << cell.paused << cell.used << cell.used_ms << cell.busy << cell.busy_ms
       << cell.judged << cell.idle << cell.idle_waited << cell.waited_ms << cell.parked << cell.moved
       << cell.pauses_caused << cell.pauses_suffered << cell.peak;
  return into.run();
}

Status File::put_cells(const Deltas& deltas) {
  for (const auto& [key, cell] : deltas.cells) {
    const auto& [slot, lease, uuid] = key;
    const auto where = device(uuid);
    if (!where) return where.error();
    const auto who = account_of(lease);
    if (!who) return who.error();
    const auto number = static_cast<std::int64_t>(lease);
    if (auto done = put_cell(put_minute_, slot / minute, number, *where, cell); !done) return done;
    if (auto done = put_cell(put_hour_, slot / hour, *who, *where, cell); !done) return done;
    if (auto done = put_cell(put_day_, slot / day, *who, *where, cell); !done) return done;
  }
  return {};
}

Status File::put_devices(const Deltas& deltas) {
  for (const auto& [key, cell] : deltas.devices) {
    const auto id = device(key.second);
    if (!id) return id.error();
    for (const auto& [into, slot] :
         {std::pair{&put_device_minute_, key.first / minute}, {&put_device_hour_, key.first / hour}}) {
      *into << slot << *id << cell.leased << cell.used << cell.used_ms << cell.busy << cell.busy_ms << cell.total;
      if (auto done = into->run(); !done) return done;
    }
  }
  for (const auto& [slot, ms] : deltas.waiting) {
    put_waiting_ << slot / minute << ms;
    if (auto done = put_waiting_.run(); !done) return done;
  }
  return {};
}

Status File::put_waits(const Deltas& deltas) {
  for (const Wait& wait : deltas.waits) {
    const auto id = account(wait.account);
    if (!id) return id.error();
    put_wait_ << wait.at << static_cast<std::int64_t>(wait.lease.number) << *id << wait.wanted << wait.waited
              << std::int64_t{wait.granted};
    if (auto done = put_wait_.run(); !done) return done;
  }
  return {};
}

Status File::put_pairs(const Deltas& deltas) {
  for (const auto& [key, ms] : deltas.pairs) {
    const auto& [slot, waiting, holding] = key;
    const auto waiter = account(waiting), holder = account(holding);
    if (!waiter || !holder) return waiter ? holder.error() : waiter.error();
    for (const auto& [into, number] : {std::pair{&put_pair_minute_, slot / minute}, {&put_pair_hour_, slot / hour}}) {
      *into << number << *waiter << *holder << static_cast<std::int64_t>(std::llround(ms * 1000));
      if (auto done = into->run(); !done) return done;
    }
  }
  return {};
}

// A gap that goes on is one row.
Status File::put_gaps(const Deltas& deltas) {
  for (const Gap& gap : deltas.gaps) {
    if (gap.to <= gap.from) continue;
    extend_gap_ << gap.to << gap.from << gap.what << gap.why;
    if (auto done = extend_gap_.run(); !done) return done;
    if (database_->changed_rows() > 0) continue;
    put_gap_ << gap.from << gap.to << gap.what << gap.why;
    if (auto done = put_gap_.run(); !done) return done;
  }
  return {};
}

Status File::put_checkpoints(const Deltas& deltas) {
  for (const auto& [key, bytes] : deltas.checkpoints) {
    put_checkpoint_ << key.first / minute << static_cast<std::int64_t>(key.second) << bytes;
    if (auto done = put_checkpoint_.run(); !done) return done;
  }
  return {};
}

Status File::put_work(const Deltas& deltas) {
  for (const auto& [key, work] : deltas.work) {
    put_work_ << key.first / minute << static_cast<std::int64_t>(key.second) << work.launches << work.copied
              << work.allocated << work.errors << work.charged_us << work.waited_us;
    if (auto done = put_work_.run(); !done) return done;
  }
  return {};
}

Result<bool> File::prune(Ms now, Ms minutes_before, Ms hours_before, int slice) {
  const std::string by_minute = fmt::format("{}", minutes_before / minute),
                    by_hour = fmt::format("{}", hours_before / hour);
  const std::string by_time = fmt::format("{}", minutes_before);
  bool more = false;
  const auto remove = [&](const std::string& table, const std::string& key, const std::string& condition) -> Status {
    const std::string sql = fmt::format("DELETE FROM {0} WHERE ({1}) IN (SELECT {1} FROM {0} WHERE {2} LIMIT {3})",
                                        table, key, condition, slice);
    if (auto done = database_->run(sql.c_str()); !done) return done;
    more = more || database_->changed_rows() == slice;
    return {};
  };
  const std::tuple<const char*, const char*, std::string> all[] = {
      {"minutes", "slot, lease, device", "slot < " + by_minute},
      {"device_minutes", "slot, device", "slot < " + by_minute},
      {"checkpoints", "slot, lease", "slot < " + by_minute},
      {"work", "slot, lease", "slot < " + by_minute},
      {"waiting_minutes", "slot", "slot < " + by_minute},
      {"pair_minutes", "slot, waiter, holder", fmt::format("slot < {}", (now - pairs_kept) / minute)},
      {"waits", "rowid", "at < " + by_time},
      {"leases", "lease", "ended < " + by_time},
      {"hours", "slot, account, device", "slot < " + by_hour},
      {"days", "slot, account, device", fmt::format("slot < {}", hours_before / day)},
      {"device_hours", "slot, device", "slot < " + by_hour},
      {"pair_hours", "slot, waiter, holder", fmt::format("slot < {}", minutes_before / hour)},
      {"gaps", "rowid", fmt::format("to_at < {}", hours_before)}};
  for (const auto& [table, key, condition] : all)
    if (auto done = remove(table, key, condition); !done) return done.error();
  return more;
}

}  // namespace sublet::meter
