// SPDX-License-Identifier: Apache-2.0
#include "store/sqlite.h"


#include "base/fd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <utility>

namespace sublet::store {
namespace {

// The pragmas for every connection. Exclusive locking comes first: it needs no shared memory file for the log, and it
// excludes every second connection. This avoids the checkpoint race of SQLite before 3.51.3. FULL makes each commit
// survive a loss of power.
constexpr auto settings =
    "PRAGMA locking_mode = EXCLUSIVE;"
    "PRAGMA synchronous = FULL;"
    "PRAGMA mmap_size = 0;"
    "PRAGMA journal_size_limit = 16777216;"
    "PRAGMA trusted_schema = OFF;"
    "PRAGMA cell_size_check = ON;";

// Returns the operation that the system refused: SQLite itself says only "disk I/O error".
const char* doing(int code) {
  switch (code) {
    case SQLITE_IOERR_READ:
    case SQLITE_IOERR_SHORT_READ: return " while reading";
    case SQLITE_IOERR_WRITE: return " while writing";
    case SQLITE_IOERR_FSYNC:
    case SQLITE_IOERR_DIR_FSYNC: return " while syncing";
    case SQLITE_IOERR_TRUNCATE: return " while truncating";
    default: return "";
  }
}

}  // namespace

Result<std::unique_ptr<Database>> Database::open(const std::string& path, Mode mode) {
  std::unique_ptr<Database> database(new Database(path));
  // SQLite gives its log the mode of the database. Other users read neither, whatever the umask is.
  const bool is_file = path != ":memory:";
  const int flags_of_file = (mode == Mode::create ? O_CREAT : 0) | O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  const Fd file(is_file ? ::open(path.c_str(), flags_of_file, 0600) : -1);
  struct stat info {};
  if (file && ::fstat(file.get(), &info) == 0 && (info.st_mode & 0077) != 0) {
    ::fchmod(file.get(), 0600);
    ::chmod((path + "-wal").c_str(), 0600);
  }
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  if (mode == Mode::create) flags |= SQLITE_OPEN_CREATE;
  if (sqlite3_open_v2(path.c_str(), &database->handle_, flags, nullptr) != SQLITE_OK) return database->fail("open");
  return database;
}

Status Database::configure() {
  if (auto done = run(settings); !done) return done;
  sqlite3_busy_timeout(handle_, 0);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  // A hook of ours also turns off SQLite's checkpoint inside the commit. The store makes its checkpoint after the
  // commit was reported.
  sqlite3_wal_hook(
      handle_,
      [](void* self, sqlite3*, const char*, int pages) {
        static_cast<Database*>(self)->log_pages_ = pages;
        return SQLITE_OK;
      },
      this);
  return {};
}

Database::~Database() { sqlite3_close_v2(handle_); }

Status Database::run(const char* sql) {
  if (sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
    return fail(std::string_view(sql).substr(0, std::string_view(sql).find_first_of(";\n")));
  }
  return {};
}

Result<std::int64_t> Database::integer(const char* sql) {
  Statement statement(*this, sql);
  const auto row = statement.step();
  if (!row) return row.error();
  return *row ? statement.integer() : 0;
}

Result<std::string> Database::text(const char* sql) {
  Statement statement(*this, sql);
  const auto row = statement.step();
  if (!row) return row.error();
  return *row ? statement.text() : std::string();
}

std::int64_t Database::changed_rows() const { return sqlite3_changes64(handle_); }

void Database::checkpoint_on_close(bool on) {
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on ? 0 : 1, nullptr);
}

Status Database::checkpoint(int pages) {
  if (log_pages_ <= pages) return {};
  if (sqlite3_wal_checkpoint_v2(handle_, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr) != SQLITE_OK) {
    return fail("checkpoint");
  }
  log_pages_ = 0;
  return {};
}

Error Database::fail(std::string_view what) {
  const int code = sqlite3_extended_errcode(handle_);
  const int primary = code & 0xff;
  if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB) corrupt_ = true;
  std::string words = sqlite3_errmsg(handle_);
  words += doing(code);
  if (const int os_error = sqlite3_system_errno(handle_);
      os_error != 0 && (primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN || primary == SQLITE_FULL)) {
    words += ", " + from_errno("system", os_error).detail;
  }
  return keep(unavailable(fmt::format("store {}: {}: {} (SQLite code {})", path_, what, words, code)));
}

Error Database::fail_undecodable(std::string_view what) {
  corrupt_ = true;
  return keep(unavailable(fmt::format("store {}: {}", path_, what)));
}

Error Database::keep(Error error) {
  if (!failure_) failure_ = error;
  return error;
}

Statement::Statement(Database& database, std::string_view sql) : database_(&database), sql_(sql) {}

Statement::~Statement() { sqlite3_finalize(handle_); }

bool Statement::usable() {
  if (handle_ == nullptr && !error_) {
    check(sqlite3_prepare_v3(database_->handle(), sql_.data(), static_cast<int>(sql_.size()), SQLITE_PREPARE_PERSISTENT,
                             &handle_, nullptr));
  }
  return !error_;
}

void Statement::check(int code) {
  if (code != SQLITE_OK && !error_) error_ = database_->fail("prepare");
}

Statement& Statement::operator<<(std::int64_t value) {
  if (usable()) check(sqlite3_bind_int64(handle_, ++next_value_, value));
  return *this;
}

Statement& Statement::operator<<(std::string_view value) {
  const char* data = value.data() != nullptr ? value.data() : "";  // a null pointer would bind NULL
  if (usable()) check(sqlite3_bind_text64(handle_, ++next_value_, data, value.size(), SQLITE_STATIC, SQLITE_UTF8));
  return *this;
}

Statement& Statement::copy(std::string_view value) {
  if (value.empty()) return *this << std::string_view("");
  const char* data = value.data() != nullptr ? value.data() : "";  // a null pointer would bind NULL
  if (usable()) check(sqlite3_bind_text64(handle_, ++next_value_, data, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}

Statement& Statement::operator<<(const std::optional<std::int64_t>& value) {
  if (value) return *this << *value;
  if (usable()) check(sqlite3_bind_null(handle_, ++next_value_));
  return *this;
}

Result<bool> Statement::step() {
  if (!usable()) {
    reset();
    return *std::exchange(error_, std::nullopt);
  }
  next_column_ = 0;
  const int code = sqlite3_step(handle_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    reset();
    return false;
  }
  // The SQL text has placeholders and no values, so it may be shown.
  Error error = database_->fail(std::string_view(sql_).substr(0, 60));
  reset();
  return error;
}

Status Statement::run() {
  for (;;) {
    const auto row = step();
    if (!row) return row.error();
    if (!*row) return {};
  }
}

void Statement::reset() {
  sqlite3_reset(handle_);
  next_value_ = 0;
}

std::int64_t Statement::integer() { return sqlite3_column_int64(handle_, next_column_++); }

std::string Statement::text() {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(handle_, next_column_));
  const int size = sqlite3_column_bytes(handle_, next_column_++);
  return data == nullptr ? std::string() : std::string(data, static_cast<std::size_t>(size));
}

std::optional<std::int64_t> Statement::maybe_integer() {
  if (sqlite3_column_type(handle_, next_column_) == SQLITE_NULL) {
    ++next_column_;
    return std::nullopt;
  }
  return integer();
}

}  // namespace sublet::store
