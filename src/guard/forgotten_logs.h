// SPDX-License-Identifier: Apache-2.0
// The logs of programs that were removed. A program that runs on keeps its log until its keeper has ended.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace sublet::guard {

// Numbers of programs, which name their logs.
using LogNumbers = std::set<std::uint64_t>;

// Removes logs below `dir` (dir/UID/program-NUMBER.log, its rotated files and its lock), unless a keeper has the lock:
// those in `removed`, and those of numbers that are not in `known` and were not written for a week. The latter may
// belong to a store that was lost or exchanged, so they are not removed at once. Other files stay. Reads at
// most 1000 names of each directory. Returns whether to call again soon: a keeper has a log in `removed`, or there are
// more names. Never waits, except for the disk.
bool remove_forgotten_logs(const std::string& dir, const LogNumbers& known, const LogNumbers& removed);

}  // namespace sublet::guard
