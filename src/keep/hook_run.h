// SPDX-License-Identifier: Apache-2.0
// One run of a session's checkpoint command. Single thread; one per process.
#pragma once

#include "client/endpoint.h"
#include "keep/document.h"

#include <cstdint>
#include <optional>
#include <string>

namespace sublet::keep {

// The result of a command that saves the work of a program.
struct HookResult {
  std::string locator;                     // the last line of its output that is not empty
  std::string problem;                     // why it failed, with the last line of its error output; "": it did not
  std::optional<std::int64_t> bytes = {};  // of the file or directory that the locator names; unset: not known
};

inline constexpr std::size_t longest_locator = 4096;  // bytes; a longer line is a problem

// Runs the command of the document in a process group of its own, until it ends or its time is over. Then the group is
// killed. Processes that it leaves in the background are not waited for. An absolute path as locator must name a file
// that has content, or a directory.
HookResult run_command(const Document& document);

// Runs the command, and reports the result to the daemon. Returns when that was done, or when the daemon stays away.
void run_hook(Document document, const client::Endpoint& endpoint);

}  // namespace sublet::keep
