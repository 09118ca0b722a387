// SPDX-License-Identifier: Apache-2.0
// What is wrong with a line that the parser of TOML does not take, in the words of who wrote it. Private to this
// folder.
#pragma once

#include <string>
#include <string_view>

namespace sublet::config {

struct Complaint {
  std::string text, hint;
};

// Of that line (from 1) of the file; `twice`: it repeats what was there before.
Complaint complaint_about(std::string_view file, unsigned line, bool twice);

// A line that has a key and something behind it, and no '=' between them.
bool lacks_equals(std::string_view line);
std::string_view line_of(std::string_view file, unsigned line);

}  // namespace sublet::config
