// SPDX-License-Identifier: Apache-2.0
// Starts a program that leaves its parent: it reads a document, forks, and its first process ends.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "base/ids.h"

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace sublet::proc {

// Descriptors of such a program: it reads the document, and its first process writes "PID START_TICKS\n" of the process
// that goes on.
inline constexpr int document_descriptor = 3;
inline constexpr int report_descriptor = 4;
// Instead, a starter that fails before the program runs writes this and a sentence.
inline constexpr std::string_view failure_mark = "failed: ";

struct Detaching {
  pid_t first = 0;  // the first process, to be waited for
  Fd report;        // reading end; non-blocking
};

// A file in memory with this text, at its beginning. Close-on-exec.
Result<Fd> document_file(std::string_view text);

// Starts `program` with an empty environment but PATH, and with /dev/null as 0, 1 and 2. `arguments` tell people which
// one it is.
Result<Detaching> detach(const std::string& program, const std::vector<std::string>& arguments,
                         std::string_view document);
// Call it with what was read from `report`; "": it was closed. Waits for the first process, which is about to end.
Result<ProcessRef> finish_detaching(Detaching& detaching, std::string_view report);

// The same without waiting, for a program that somebody else started.
Result<ProcessRef> parse_report(std::string_view report);

// For the program itself: forks, has the first process report the second one and end, and gives the second a session of
// its own. Returns in the second process only.
void leave_parent();

// For a program that is nobody's child already: reports this process. False: it is not known, and nothing was reported.
bool report_self();

}  // namespace sublet::proc
