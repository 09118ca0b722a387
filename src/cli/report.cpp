// SPDX-License-Identifier: Apache-2.0
// How errors and talk look.
#include "cli/output.h"
#include "cli/verb.h"
#include "cli/wait_line.h"

#include <fmt/format.h>

#include <cstdio>

namespace sublet::cli {

// A detail may have the last lines of another program, which follow its first line.
void print_error(std::string_view detail, std::string_view hint) {
  std::string text = "sublet: ";
  for (bool more = true; more;) {
    const auto end = detail.find('\n');
    more = end != detail.npos;
    text += visible(detail.substr(0, end)) + (more ? "\n    " : "\n");
    if (more) detail.remove_prefix(end + 1);
  }
  write_stderr(text);
  if (!hint.empty()) write_stderr(fmt::format("  hint: {}\n", visible(hint)));
}

int exit_code(Code code) {
  switch (code) {
    case Code::Memory:
    case Code::Priority:
    case Code::Quota:
    case Code::Share:
    case Code::Settling:
    case Code::External:
    case Code::HostMemory:
    case Code::Draining:
    case Code::GpuLost:
    case Code::Unverified: return kWouldWait;  // nothing is granted on a guess: it may be known later
    case Code::Denied: return kNotAllowed;
    case Code::BadRequest: return kUsage;
    case Code::NotFound: return kNotFound;
    default: return kFailed;
  }
}

int fail(const Error& error) {
  print_error(error.detail, error.hint.empty() ? "sublet doctor checks this machine and says what to do" : error.hint);
  return exit_code(error.code);
}

int usage_error(std::string_view detail, std::string_view hint) {
  print_error(detail, hint.empty() ? "see: sublet --help" : hint);
  return kUsage;
}

void say(const Common& common, std::string_view line) {
  if (!common.quiet) write_stderr(fmt::format("{}\n", line));
}

}  // namespace sublet::cli
