// SPDX-License-Identifier: Apache-2.0
// The resource limits of this process. The caller sets them for the program, and they must not end the program's
// keeper.
#pragma once

#include <sys/resource.h>

#include <vector>

namespace sublet::keep {

struct Limit {
  int resource = 0;  // RLIMIT_…
  rlimit values{};
};

// Raises the limits of this process as far as it may. Returns the limits from before, for the program. CPU time, file
// size, open files, stack, data and address space are raised; the other limits do not harm a keeper.
std::vector<Limit> raise_limits();

// Sets the limits. Call it in a child between fork and exec.
void set_limits(const std::vector<Limit>& limits);

}  // namespace sublet::keep
