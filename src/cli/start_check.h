// SPDX-License-Identifier: Apache-2.0
// Checks before a request whether a program could start under the lease. A program that could not start must not wait
// in the queue.
#pragma once

#include "base/error.h"
#include "client/client.h"

#include <string>

namespace sublet::cli {

// NotFound: the working directory was removed.
Status check_directory();

// Denied: the daemon cannot verify a process of this caller. It was called over TCP, or is in another pid namespace.
// Call it after an answer of the daemon.
Status check_caller(const client::Client& client);

// Returns a warning if this user may not open the device files of real NVIDIA cards in `dir` (/dev); else "". The
// program may still have the right, as with sudo. Files that do not exist are no obstacle: they may be made on demand.
std::string unusable_device_files(const std::string& dir);

}  // namespace sublet::cli
