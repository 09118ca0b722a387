// SPDX-License-Identifier: Apache-2.0
#include "cli/log_line.h"

#include "base/text.h"
#include "cli/output.h"

#include <algorithm>

#include <fmt/format.h>

namespace sublet::cli {
namespace {

constexpr std::string_view mark_start = "== sublet ";

// The length of the colour sequence ("\x1b[1;31m") at the start of the text; 0: there is none.
std::size_t color_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const auto end = text.find_first_not_of("0123456789;", 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

std::string_view last_part(std::string_view text) {
  while (text.ends_with('\r')) text.remove_suffix(1);
  const auto overwritten = text.rfind('\r');
  return overwritten == std::string_view::npos ? text : text.substr(overwritten + 1);
}

}  // namespace

LogLine parse_log_line(std::string_view line) {
  const auto space = line.find_first_of(" \t");
  const std::string_view time = line.substr(0, space);
  if (!parse_rfc3339(time)) return {{}, line};
  if (space == std::string_view::npos) return {time, {}};
  return {time, line.substr(space + 1), line[space] == '\t'};
}

std::string mark_text(const LogLine& line) {
  return fmt::format("{}{}: {} ==", mark_start, line.time, visible(line.text));
}

bool begins_log(const LogLine& line) {
  const auto has = [&](std::string_view part) { return line.text.find(part) != std::string_view::npos; };
  return line.mark && line.text.starts_with("start ") && (has(": pid ") || has(" failed: "));
}

bool imitates_mark(std::string_view text) { return text.starts_with(mark_start); }

bool may_imitate_mark(std::string_view text) {
  return text.size() < mark_start.size() && mark_start.starts_with(text);
}

std::string for_terminal(std::string_view text, bool color) {
  text = last_part(text);
  std::string out;
  bool colored = false;
  while (!text.empty()) {
    const std::size_t sequence = color_length(text);
    if (sequence > 0) {
      if (color) out += text.substr(0, sequence);
      colored = true;
      text.remove_prefix(sequence);
      continue;
    }
    if (text.front() == '\t') {
      out += '\t';
      text.remove_prefix(1);
      continue;
    }
    const std::size_t end = std::min(text.find_first_of("\x1b\t", 1), text.size());
    out += visible(text.substr(0, end));
    text.remove_prefix(end);
  }
  if (colored && color) out += "\x1b[0m";
  return out;
}

}  // namespace sublet::cli
