// SPDX-License-Identifier: Apache-2.0
// Makes system calls under SQLite fail, for all databases of this process.
#pragma once

#include <cstdint>

namespace sublet::sim {

// Makes the n-th write or sync from now on (1: the next) fail with this errno, and only that one; 0: none fails.
void fail_disk_call(std::uint64_t n, int error);

// Installs the hook in SQLite; call once, before the first database is opened.
void watch_disk_calls();

}  // namespace sublet::sim
