// SPDX-License-Identifier: Apache-2.0
// A look at a process by the files that the kernel has about it.
#pragma once

#include "base/ids.h"
#include "proc/process_table.h"

#include <string_view>

namespace sublet::limit {

// The libraries that a process has mapped.
struct Mapped {
  int drivers = 0;  // copies of libcuda.so.1; dlmopen() makes another one
  bool has_interposer = false;
};
Mapped mapped_in(std::string_view maps);  // the text of /proc/PID/maps

// Nothing is mapped if the daemon may not read that.
Mapped mapped_by(const proc::ProcRoot& root, ProcessRef process);
// Whether a debugger is attached to the process.
bool is_traced(const proc::ProcRoot& root, ProcessRef process);

}  // namespace sublet::limit
