// SPDX-License-Identifier: Apache-2.0
// Functions shared by docs/reference/ and the manual, which are both made from the parser's tree.
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
std::span<const ExitCode> exit_codes();  // exit codes that all verbs share

std::vector<std::string> option_names(const CLI::Option& option);  // "-m", "--vram"; for a positional, its name first
// "SIZE", "SCOPE=read" as in --help; "" for a flag or a positional.
std::string option_type(const CLI::Option& option);

// The manual pages: sublet(1), one page per verb, sublet.toml(5).
struct Page {
  std::string file;  // "sublet-run.1"
  std::string text;
};
std::vector<Page> manual_pages();

}  // namespace sublet::cli
