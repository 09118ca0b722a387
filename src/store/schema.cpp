// SPDX-License-Identifier: Apache-2.0
#include "store/schema.h"

#include "store/files.h"
#include "store/migrations.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>

namespace sublet::store {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t application_id = 0x53424c54;  // "SBLT" in the file's header marks a store of ours

// The check reads the whole file. In a larger file, only the leases are checked, because damage there would grant
// memory that is taken. Damage elsewhere is found when it is read, and the store is set aside then.
constexpr std::int64_t fully_checked_bytes = 64LL << 20;

int oldest_version() { return migrations().front().version; }
int newest_version() { return migrations().back().version; }

Status migrate(Database& database, int version) {
  for (const Migration& migration : migrations()) {
    if (migration.version <= version) continue;
    // Each step is a transaction: a crash leaves the older or the newer schema, never a mixture.
    const std::string script =
        fmt::format("BEGIN EXCLUSIVE;\n{}\nPRAGMA user_version = {};\nCOMMIT;", migration.sql, migration.version);
    if (auto done = database.run(script.c_str()); !done) {
      Error error = done.error();
      error.detail += fmt::format(", in migration {}", migration.name);
      return error;
    }
  }
  return {};
}

Status check(Database& database, const char* pragma) {
  const auto verdict = database.text(pragma);
  if (!verdict) return verdict.error();
  if (*verdict != "ok") return database.fail_undecodable(*verdict);
  return {};
}

Status check_content(Database& database) {
  const auto pages = database.integer("PRAGMA page_count");
  if (!pages) return pages.error();
  const auto page_size = database.integer("PRAGMA page_size");
  if (!page_size) return page_size.error();
  if (*pages * *page_size <= fully_checked_bytes) return check(database, "PRAGMA quick_check(1)");
  if (auto good = check(database, "PRAGMA quick_check(leases)"); !good) return good;
  return check(database, "PRAGMA quick_check(meta)");
}

// Returns the version of the schema, after checking that the file is a store that this program can read.
Result<int> recognise(Database& database) {
  const auto pages = database.integer("PRAGMA page_count");
  if (!pages) return pages.error();
  // A store is made under another name and renamed when it is complete. So an empty file is the rest of a damaged
  // store.
  if (*pages == 0) return database.fail_undecodable("the file is empty");
  const auto id = database.integer("PRAGMA application_id");
  if (!id) return id.error();
  if (*id != application_id) {
    return bad_request(fmt::format("{} is a database of another program", database.path()),
                       "choose another store.path; the file was not touched");
  }
  const auto version = database.integer("PRAGMA user_version");
  if (!version) return version.error();
  if (*version > newest_version()) {
    return unavailable(fmt::format("the store {} has version {}, but this program knows versions up to {} only",
                                   database.path(), *version, newest_version()),
                       "start the newer program again; the file was not touched");
  }
  if (*version < 1) return database.fail_undecodable("the file has no version");
  if (*version < oldest_version()) {
    return unavailable(fmt::format("the store {} has version {}, and this program reads versions from {} only",
                                   database.path(), *version, oldest_version()),
                       "start the program that wrote it, or move the file away: then Sublet begins with a new store; "
                       "the file was not touched");
  }
  return static_cast<int>(*version);
}

Status use_write_ahead_log(Database& database) {
  const auto mode = database.text("PRAGMA journal_mode = WAL");
  if (!mode) return mode.error();
  if (*mode != "wal") {
    return unavailable(fmt::format("store {}: this file system allows no write-ahead log", database.path()));
  }
  return {};
}

// The store is made under another name and renamed, so that a file called store.db is always complete.
Status make(const fs::path& path) {
  const fs::path fresh = path.string() + ".new";
  std::error_code ignored;
  for (const char* suffix : {"", "-wal", "-journal"}) fs::remove(fresh.string() + suffix, ignored);
  if (!Fd(::open(fresh.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600))) {
    return from_errno(fmt::format("cannot create the store {}", fresh.string()), errno);
  }
  {
    auto opened = Database::open(fresh.string(), Database::Mode::create);
    if (!opened) return opened.error();
    Database& database = **opened;
    if (auto done = database.configure(); !done) return done;
    const std::string mark = fmt::format("PRAGMA application_id = {}", application_id);
    if (auto done = database.run(mark.c_str()); !done) return done;
    if (auto done = migrate(database, 0); !done) return done;
    if (auto done = use_write_ahead_log(database); !done) return done;
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    return from_errno(fmt::format("cannot create the store {}", path.string()), errno);
  }
  return sync_directory(path.parent_path());
}

Status prepare(Database& database) {
  database.checkpoint_on_close(false);  // nothing is written until the file is known to be ours and readable
  if (auto done = database.configure(); !done) return done;
  const auto version = recognise(database);
  if (!version) return version.error();
  if (auto good = check_content(database); !good) return good;
  if (auto done = use_write_ahead_log(database); !done) return done;
  if (auto done = migrate(database, *version); !done) return done;
  // After a killed or failed run, the log may only be in the page cache. The daemon is about to act on it, so it must
  // become durable first.
  if (auto done = database.checkpoint(-1); !done) return done;
  database.checkpoint_on_close(true);
  return {};
}

}  // namespace

Result<std::unique_ptr<Database>> open_database(const fs::path& path, bool exists) {
  if (!exists) {
    if (auto made = make(path); !made) {
      Error error = made.error();
      error.detail += "; " + free_space(path.parent_path());
      return error;
    }
  }
  auto opened = Database::open(path.string(), Database::Mode::existing);
  if (!opened) return opened.error();
  const auto ready = prepare(**opened);
  if (ready) return opened;
  const bool corrupt = (*opened)->corrupt();
  opened->reset();
  if (corrupt) return set_aside(path, ready.error().detail);
  return ready.error();
}

}  // namespace sublet::store
