// SPDX-License-Identifier: Apache-2.0
// Explains the fault of a line that the TOML parser refuses, in a user's words. Private to this folder.
#pragma once

#include <string>
#include <string_view>

namespace sublet::config {

struct Complaint {
  std::string text, hint;
};

// Explains the fault in `line` (from 1) of the file. `twice`: the line repeats an earlier key or table.
Complaint complaint_about(std::string_view file, unsigned line, bool twice);

// Whether the line has a key and something behind it, but no '=' between them.
bool lacks_equals(std::string_view line);
std::string_view line_of(std::string_view file, unsigned line);

}  // namespace sublet::config
