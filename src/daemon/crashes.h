// SPDX-License-Identifier: Apache-2.0
// A record of the daemon's crashes, in a file beside the store: ends by its own fault (SIGABRT, SIGSEGV, SIGBUS,
// SIGFPE, SIGILL), never by somebody else's will (SIGKILL, SIGTERM). From it the next start knows that it is one too
// many.
#pragma once

#include "base/units.h"
#include "core/rules.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::daemon {

struct Crash {
  Time at;  // by the wall clock
  int signal = 0;
  bool operator==(const Crash&) const = default;
};

// What the file says, as far as it can be made out; whatever else stands there is passed over.
std::vector<Crash> parse_crashes(std::string_view bytes);

// Three within a minute, not long ago; until ten minutes after the last.
std::optional<core::SafeMode> safe_mode_after(const std::vector<Crash>& crashes, Time now);

// Reads the record and has every crash from now on added to it. A file that cannot be used is no reason not to start:
// then nothing is recorded, and the log says so. Once in a process, by its main thread.
std::vector<Crash> record_crashes(const std::string& path);

// As a crash does. Safe in a signal handler; the first in a process counts.
void note_crash(int signal);

// It ended well: whatever was before does not count any more.
void forget_crashes(const std::string& path);

}  // namespace sublet::daemon
