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
#include <utility>

namespace sublet::guard {

struct LogQuery {
  std::string path;                    // absolute path of the live file
  std::uint32_t uid = 0;               // the only permitted owner of the files
  std::optional<std::size_t> lines{};  // begin with the last N lines, at most 64 MiB before the end; unset: no limit
  std::optional<Time> since{};         // begin with the first line of this time or later
  int keep = 0;                        // number of rotated files: path.1 (the newest) to path.KEEP
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
  void open_newer();

  LogQuery query_;
  Files files_;
};

}  // namespace sublet::guard
