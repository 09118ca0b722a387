// SPDX-License-Identifier: Apache-2.0
// Lets calls of the system fail under SQLite: of all databases of this process.
#pragma once

#include <cstdint>

namespace sublet::sim {

// The n-th write or sync from now on (1: the next) fails with this errno, and only that one; 0: none does.
void fail_disk_call(std::uint64_t n, int error);

// Has SQLite ask us; once, before the first database is opened.
void watch_disk_calls();

}  // namespace sublet::sim
