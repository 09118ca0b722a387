// SPDX-License-Identifier: Apache-2.0
// The log of a supervised program, as its keeper writes it: each line has its time, and full files are rotated.
#pragma once

#include "base/fd.h"
#include "base/units.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::keep {

struct LogLimits {
  std::string path;  // absolute; rotated files are path.1 (the newest) to path.KEEP
  Bytes max_size{};  // of one file
  int keep = 0;      // rotated files; 0: a full file is removed
  Bytes user_max{};  // of all files in its directory; 0: no limit
  // Free space that the disk keeps for others, among them the daemon's store. Unset: 128 MiB or a tenth of the disk.
  std::optional<Bytes> leave_free{};
};

// Writes lines "2026-11-26T20:00:00.123Z text\n", with the time of their first byte. Text without a newline is written
// at once, and split at 16 KiB and at a rotation. Above the limit of the directory, the rotated files of this log are
// removed, the oldest first, before bytes are dropped. An existing file is continued. A file that cannot be written
// never stops the writer: bytes are counted and dropped, and a line reports their number later. Owns the open file.
// Nothing here throws. Belongs to one thread.
class LogFile {
 public:
  explicit LogFile(LogLimits limits);  // opens nothing yet

  void write(std::string_view bytes, Time now);
  // Writes a line of the keeper, "TIME\ttext\n". A line of the program has a blank in the place of the tab.
  void mark(std::string_view text, Time now);
  // Ends a partial line, and reports lost bytes. Call it at the end of the output.
  void finish(Time now);
  // Why bytes are lost now: "cannot write PATH: No space left on device". "": writing works.
  const std::string& problem() const { return problem_; }

 private:
  // A part of `pending_`: where it ends, and how many bytes of the program it has.
  struct Piece {
    std::size_t end = 0;
    std::size_t bytes = 0;
  };

  bool prepare(Time now, bool at_once = false);
  bool open();
  bool has_room();
  bool is_below_user_max();
  bool add(std::string_view piece, Time now, char separator = ' ');
  void end_line();
  bool flush();
  bool rotate();
  bool fail(const std::string& why);
  std::string numbered(int number) const;

  LogLimits limits_;
  std::size_t longest_line_;  // bytes of the program in one line
  Fd file_;
  std::string pending_;         // not yet written
  std::vector<Piece> pieces_;   // of `pending_`
  std::int64_t size_ = 0;       // bytes of the file, with `pending_`
  bool in_line_ = false;        // the last line has no newline yet
  std::size_t line_ = 0;        // bytes of the program in this line
  std::size_t lost_ = 0;        // bytes of the program, not yet reported
  std::int64_t unchecked_ = 0;  // bytes written since the directory was measured
  Time tried_{};                // the last attempt while there is a problem
  std::string problem_;
};

}  // namespace sublet::keep
