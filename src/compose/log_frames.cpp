// SPDX-License-Identifier: Apache-2.0
#include "compose/log_frames.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::compose {
namespace {

constexpr std::size_t header_size = 8;
constexpr std::size_t longest_line = 16384;

}  // namespace

bool has_terminal(const nlohmann::json& document) {
  const auto config = document.find("Config");
  if (config == document.end() || !config->is_object()) return false;
  const auto terminal = config->find("Tty");
  return terminal != config->end() && terminal->is_boolean() && terminal->get<bool>();
}

void LogFrames::take(std::string& line, std::string_view text, std::string& out) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::size_t part = std::min(end, longest_line - std::min(line.size(), longest_line));
    line.append(text.substr(0, part));
    const bool whole = part == end && end < text.size();
    text.remove_prefix(part + (whole ? 1 : 0));
    if (!whole && line.size() < longest_line) return;
    if (line.ends_with('\r')) line.pop_back();
    out += fmt::format("{} | {}\n", service_, line);
    line.clear();
  }
}

std::string LogFrames::feed(std::string_view bytes) {
  std::string out;
  if (terminal_) {
    take(lines_[0], bytes, out);
    return out;
  }
  while (!bytes.empty()) {
    if (left_ == 0) {
      const std::size_t part = std::min(bytes.size(), header_size - header_.size());
      header_.append(bytes.substr(0, part));
      bytes.remove_prefix(part);
      if (header_.size() < header_size) return out;
      for (std::size_t i = 4; i < header_size; ++i) left_ = left_ << 8 | static_cast<unsigned char>(header_[i]);
      if (left_ == 0) header_.clear();
      continue;
    }
    const std::size_t part = std::min(bytes.size(), left_);
    take(lines_[header_[0]], bytes.substr(0, part), out);
    bytes.remove_prefix(part);
    left_ -= part;
    if (left_ == 0) header_.clear();
  }
  return out;
}

std::string LogFrames::end() {
  std::string out;
  for (auto& [stream, line] : lines_) {
    if (!line.empty()) take(line, "\n", out);
  }
  return out;
}

}  // namespace sublet::compose
