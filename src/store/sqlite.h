// SPDX-License-Identifier: Apache-2.0
// A thin layer over SQLite's C interface: handles that close themselves, errors as values with extended codes, and the
// memory of the first failure, by which the store tells a corrupt file from a full disk. One thread at a time.
#pragma once

#include "base/error.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace sublet::store {

class Database {
 public:
  enum class Mode { existing, create };

  // Reads nothing yet, so it succeeds on a damaged file.
  static Result<std::unique_ptr<Database>> open(const std::string& path, Mode mode);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Makes this the only connection there may be: exclusive locking, no shared memory, no waiting for locks, no mapping
  // of the file; and each commit durable. To be called first.
  Status configure();

  Status run(const char* sql);                    // one or several statements that return nothing of interest
  Result<std::int64_t> integer(const char* sql);  // first column of the first row; 0 without a row
  Result<std::string> text(const char* sql);
  std::int64_t changed_rows() const;  // by the last INSERT, UPDATE or DELETE

  // Whether closing copies the write-ahead log into the database. Off: the files stay as they are found.
  void checkpoint_on_close(bool on);
  // Copies the log into the database and syncs it, when the log has more pages than this.
  Status checkpoint(int pages);

  // An error of this connection: records its code, and names the file, the operation and SQLite's words.
  Error fail(std::string_view what);
  // What was read cannot have been written by us.
  Error fail_undecodable(std::string_view what);
  bool corrupt() const { return corrupt_; }
  const std::optional<Error>& failure() const { return failure_; }  // the first one

  sqlite3* handle() const { return handle_; }
  const std::string& path() const { return path_; }

 private:
  explicit Database(std::string path) : path_(std::move(path)) {}
  Error keep(Error error);

  std::string path_;
  sqlite3* handle_ = nullptr;
  int log_pages_ = 0;  // in the write-ahead log after the last commit
  bool corrupt_ = false;
  std::optional<Error> failure_;
};

// A prepared statement; prepared when it is first used, because most of a store's are not while it is open. Values are
// bound in order, by `<<`; an error while preparing or binding is kept and returned by the next step, so that a
// statement is used without a check per value.
class Statement {
 public:
  Statement(Database& database, std::string_view sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& operator<<(std::int64_t value);
  Statement& operator<<(std::string_view value);  // must live until the statement is done
  Statement& copy(std::string_view value);        // as <<, of a text that does not live that long
  Statement& operator<<(const std::optional<std::int64_t>& value);

  Result<bool> step();  // true: there is a row to read. After the last row, or an error, it may be bound anew
  Status run();         // steps to the end
  void reset();         // when rows are left unread

  std::int64_t integer();  // columns of the row, from left to right
  std::string text();
  std::optional<std::int64_t> maybe_integer();

 private:
  bool usable();  // prepared, and without an error so far
  void check(int code);

  Database* database_;
  std::string sql_;
  sqlite3_stmt* handle_ = nullptr;
  int next_value_ = 0;
  int next_column_ = 0;
  std::optional<Error> error_;
};

}  // namespace sublet::store
