// SPDX-License-Identifier: Apache-2.0
// Lines of a program's log, which the program wrote and which may contain anything.
#pragma once

#include <string>
#include <string_view>

namespace sublet::cli {

struct LogLine {
  std::string_view time;  // "2026-11-26T20:00:00.123Z"; "" if the line has no time
  std::string_view text;
  bool mark = false;  // of the keeper, about a start or an end
};
LogLine parse_log_line(std::string_view line);

// "== sublet 2026-11-26T20:00:00.123Z: start 1: pid 7 under lease-3 ==", for a line that is a mark.
std::string mark_text(const LogLine& line);
// Whether a line is the first line that a keeper writes into a log.
bool begins_log(const LogLine& line);
// Whether a text of the program begins as mark_text() does; such a text is shown behind a blank.
bool imitates_mark(std::string_view text);
// Whether more bytes could make the text one that imitates a mark.
bool may_imitate_mark(std::string_view text);

// Returns the text in a form that is safe on a terminal: colours stay if `color`, other control characters become
// visible, and of parts that overwrite each other (carriage returns) the last one stays.
std::string for_terminal(std::string_view text, bool color);

}  // namespace sublet::cli
