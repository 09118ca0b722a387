// SPDX-License-Identifier: Apache-2.0
// Lines of a program's log, which the program wrote and which may contain anything.
#pragma once

#include <string>
#include <string_view>

namespace sublet::cli {

struct LogLine {
  std::string_view time;  // "2026-11-26T20:00:00.123Z"; "" if the line has no time
  std::string_view text;
};
LogLine parse_log_line(std::string_view line);

// Returns the text in a form that is safe on a terminal: colours stay if `color`, other control characters become
// visible, and of parts that overwrite each other (carriage returns) the last one stays.
std::string for_terminal(std::string_view text, bool color);

}  // namespace sublet::cli
