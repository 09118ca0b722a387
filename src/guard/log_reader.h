// SPDX-License-Identifier: Apache-2.0
// Reads the log of a supervised program (keep/log_file.h). Its user may replace the files at any time, so each is
// checked.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "base/units.h"

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sublet::guard {

struct LogQuery {
  std::string path;       // absolute path of the live file
  std::uint32_t uid = 0;  // the only permitted owner of the files
  // Begin with the last N lines, as far before the end as N lines of a keeper can be, at most 64 MiB. Unset: no limit.
  std::optional<std::size_t> lines{};
  std::optional<Time> since{};  // begin with the first line of this time or later
  int keep = 0;                 // number of rotated files: path.1 (the newest) to path.KEEP
  bool marks = true;            // false: lines of the keeper are left out, and not counted
};

// Reads the rotated files and the live file in the order of their lines, and follows the log over rotations. Owns the
// open files. Never waits, except for the disk. Belongs to one thread.
class LogReader {
 public:
  // A missing log is an empty log. Denied: a file is a link or no regular file, has several names, or belongs to
  // another user; the error names it.
  static Result<LogReader> open(LogQuery query);

  // The next text, as it is stored, at most 64 KiB. It may end within a line. "": nothing more for now.
  std::string next();
  // Whether the line is one of the keeper: "TIME\ttext". It needs the first 25 bytes.
  static bool is_mark(std::string_view line);

 private:
  struct File {
    Fd fd;
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;    // when it was opened
    off_t offset = 0;  // of the next byte to read
    bool operator==(const File& other) const { return device == other.device && inode == other.inode; }
  };
  using Files = std::deque<File>;  // the oldest first; the last is the live file

  explicit LogReader(LogQuery query) : query_(std::move(query)) {}
  Result<File> open_file(int directory, int number) const;
  Result<Files> open_files() const;
  static off_t find_since(const File& file, const std::string& time);
  void skip_before(Time since);
  void skip_to_last(std::size_t lines);
  bool is_rotated(const File& live) const;
  std::string next_piece();
  std::string without_marks(const std::string& piece);
  void open_newer();

  LogQuery query_;
  Files files_;
  std::string line_start_;  // without marks: the beginning of a line that may be a mark
  bool in_line_ = false;    // without marks: the rest of a line follows, which is none
  bool in_mark_ = false;    // without marks: the rest of a mark follows
};

}  // namespace sublet::guard
