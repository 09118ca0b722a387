// SPDX-License-Identifier: Apache-2.0
// Reasons that show before a request that a program could not start under the lease. Such a program must not wait in
// the queue.
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

// Denied: this user may not open the device files of real NVIDIA cards in `dir` (/dev). Files that do not exist are no
// obstacle: they may be made on demand.
Status check_device_files(const std::string& dir);

}  // namespace sublet::cli
