// SPDX-License-Identifier: Apache-2.0
// A thin layer over SQLite's C interface. Handles close themselves, and errors are values with extended codes. A
// database keeps its first failure, by which the store distinguishes a corrupt file from a full disk. One thread at a
// time.
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

  // Opens the file without reading it, so it succeeds on a damaged file.
  static Result<std::unique_ptr<Database>> open(const std::string& path, Mode mode);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Sets exclusive locking, no shared memory, no waiting for locks, no mapping of the file, and durable commits. Call
  // it first.
  Status configure();

  Status run(const char* sql);                    // runs statements whose results are not needed
  Result<std::int64_t> integer(const char* sql);  // first column of the first row; 0 without a row
  Result<std::string> text(const char* sql);
  std::int64_t changed_rows() const;  // rows changed by the last INSERT, UPDATE or DELETE

  // Sets whether close copies the write-ahead log into the database. Off: close leaves the files as they are.
  void checkpoint_on_close(bool on);
  // Copies the log into the database and syncs it, if the log has more than `pages` pages.
  Status checkpoint(int pages);

  // Makes an error of this connection. Records its code, and names the file, the operation and SQLite's text.
  Error fail(std::string_view what);
  // Makes an error for data that this program cannot have written.
  Error fail_undecodable(std::string_view what);
  bool corrupt() const { return corrupt_; }
  const std::optional<Error>& failure() const { return failure_; }  // the first failure

  sqlite3* handle() const { return handle_; }
  const std::string& path() const { return path_; }

 private:
  explicit Database(std::string path) : path_(std::move(path)) {}
  Error keep(Error error);

  std::string path_;
  sqlite3* handle_ = nullptr;
  int log_pages_ = 0;  // pages in the write-ahead log after the last commit
  bool corrupt_ = false;
  std::optional<Error> failure_;
};

// A prepared statement, which is prepared at its first use. Values are bound in order by `<<`. The next step returns an
// error of preparing or binding, so that callers need not check each value.
class Statement {
 public:
  Statement(Database& database, std::string_view sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& operator<<(std::int64_t value);
  Statement& operator<<(std::string_view value);  // `value` must live until the statement is done
  Statement& copy(std::string_view value);        // as <<, but copies the text
  Statement& operator<<(const std::optional<std::int64_t>& value);

  Result<bool> step();  // true: there is a row to read; after the last row or an error, new values may be bound
  Status run();         // steps to the end
  void reset();         // call it if rows are left unread

  std::int64_t integer();  // reads the columns of the row from left to right
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
