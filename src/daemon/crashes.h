// SPDX-License-Identifier: Apache-2.0
// A record of the daemon's crashes, in a file beside the store. A crash is an end by SIGABRT, SIGSEGV, SIGBUS, SIGFPE
// or SIGILL, not by SIGKILL or SIGTERM. The next start reads from it whether there were too many crashes.
#pragma once

#include "base/units.h"
#include "lease/rules.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::daemon {

struct Crash {
  Time at;  // wall clock time
  int signal = 0;
  bool operator==(const Crash&) const = default;
};

// Returns the valid entries of the file. Other bytes are skipped.
std::vector<Crash> parse_crashes(std::string_view bytes);

// Returns safe mode after three crashes within a minute, until ten minutes after the last crash.
std::optional<core::SafeMode> safe_mode_after(const std::vector<Crash>& crashes, Time now);

// Reads the record, and adds every crash from now on to it. If the file cannot be used, nothing is recorded and the log
// says so; the daemon still starts. Call once, on the main thread.
std::vector<Crash> record_crashes(const std::string& path);

// Records a crash. Safe in a signal handler. Only the first call in a process counts.
void note_crash(int signal);

// The daemon ended normally: earlier crashes no longer count.
void forget_crashes(const std::string& path);

}  // namespace sublet::daemon
