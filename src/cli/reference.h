// SPDX-License-Identifier: Apache-2.0
// What the pages of docs/reference/ and the manual have in common: both are written from the tree that parses.
#pragma once

#include "cli/app.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::cli {

struct ExitCode {
  int code;
  std::string_view meaning;
};
std::span<const ExitCode> exit_codes();  // those that all verbs share

std::vector<std::string> option_names(const CLI::Option& option);  // "-m", "--vram"; of a positional its name first
// "SIZE", "SCOPE=read" as --help has it; "" for a flag and for a positional.
std::string option_type(const CLI::Option& option);

// The manual: sublet(1), one page a verb, sublet.toml(5).
struct Page {
  std::string file;  // "sublet-run.1"
  std::string text;
};
std::vector<Page> manual_pages();

}  // namespace sublet::cli
