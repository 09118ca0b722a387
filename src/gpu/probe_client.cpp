// SPDX-License-Identifier: Apache-2.0
#include "gpu/probe_client.h"

#include "base/text.h"

#include <fmt/format.h>

#include <charconv>

namespace sublet::gpu {

std::string encode_snapshot_command(std::uint64_t id) { return fmt::format("snapshot {}\n", id); }

Result<std::uint64_t> decode_snapshot_command(std::string_view line) {
  constexpr std::string_view verb = "snapshot ";
  std::uint64_t id = 0;
  if (line.starts_with(verb)) {
    const char* const end = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + verb.size(), end, id);
    if (error == std::errc{} && stop == end) return id;
  }
  return bad_request(fmt::format("'{}' is not a command", printable(line)), "the only command is: snapshot ID");
}

Status LineSplitter::feed(std::string_view bytes) {
  while (!failed_ && !bytes.empty()) {
    const auto end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (tail_.size() + piece.size() > limit_) {
      failed_ = true;
      break;
    }
    tail_ += piece;
    if (end == std::string_view::npos) break;
    lines_.push_back(std::exchange(tail_, {}));
    bytes.remove_prefix(end + 1);
  }
  if (!failed_) return {};
  tail_ = {};
  return bad_request(fmt::format("a line is longer than {} bytes", limit_));
}

std::optional<std::string> LineSplitter::next() {
  if (lines_.empty()) return std::nullopt;
  std::string line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

}  // namespace sublet::gpu
