// SPDX-License-Identifier: Apache-2.0
// The daemon's side of the conversation with `sublet-gpu probe`: text in, values out, no socket. A command is
// answered by one line (snapshot.h) that carries its id; commands are answered in order. Not for two threads
// at once.
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

// The id of a command line (without its newline); BadRequest for anything else.
Result<std::uint64_t> decode_snapshot_command(std::string_view line);

// Cuts a stream of bytes into lines. It holds at most one unfinished line and what was not yet taken by
// next().
class LineSplitter {
 public:
  explicit LineSplitter(std::size_t limit = max_line) : limit_(limit) {}

  // Takes bytes as they came from the socket. An error (a line longer than the limit) is final: the stream
  // can no longer be understood, and every later call fails alike. Lines that were whole before stay to be
  // taken.
  Status feed(std::string_view bytes);

  // The next whole line without its newline, if there is one.
  std::optional<std::string> next();

 private:
  std::size_t limit_;
  std::string tail_;  // the line that has not ended yet
  std::deque<std::string> lines_;
  bool failed_ = false;
};

}  // namespace sublet::gpu
