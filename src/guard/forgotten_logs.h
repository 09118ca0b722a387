// SPDX-License-Identifier: Apache-2.0
// The logs of programs that were removed. A program that runs on keeps its log until its keeper has ended.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace sublet::guard {

// Removes the logs below `dir` (dir/UID/program-NUMBER.log, its rotated files and its lock) whose number is not in
// `known`, unless a keeper has the lock. Other files are left alone. Returns whether a keeper has such a log. Never
// waits, except for the disk.
bool remove_forgotten_logs(const std::string& dir, const std::set<std::uint64_t>& known);

}  // namespace sublet::guard
