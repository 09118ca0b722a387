// SPDX-License-Identifier: Apache-2.0
// The daemon's side of the protocol of `sublet-gpu probe`: text in, values out, no socket. Each command has a reply
// line (snapshot.h) with its id, in order. One thread at a time.
#pragma once

#include "base/error.h"
#include "gpu/snapshot.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::gpu {

std::string encode_snapshot_command(std::uint64_t id);  // "snapshot 7\n"

// Returns the id of a command line (without its newline); BadRequest for any other text.
Result<std::uint64_t> decode_snapshot_command(std::string_view line);

// Cuts a stream of bytes into lines. Keeps at most one unfinished line, and the lines that next() has not returned yet.
class LineSplitter {
 public:
  explicit LineSplitter(std::size_t limit = max_line) : limit_(limit) {}

  // Adds bytes from the socket. A line longer than the limit is a final error: all later calls fail too. Complete lines
  // before it can still be taken.
  Status feed(std::string_view bytes);

  // Returns the next complete line without its newline, if there is one.
  std::optional<std::string> next();

 private:
  std::size_t limit_;
  std::string tail_;  // the unfinished line
  std::deque<std::string> lines_;
  bool failed_ = false;
};

}  // namespace sublet::gpu
