// SPDX-License-Identifier: Apache-2.0
// Follows the daemon's events about leases, on a thread of its own.
#pragma once

#include "base/fd.h"
#include "client/endpoint.h"

#include <memory>

namespace sublet::kube {

// A descriptor that is readable after an event about a lease, and after each connection to a daemon: events before it
// may be missing. Read 8 bytes from it to wait for the next one. The thread lives as long as the process.
std::shared_ptr<Fd> follow_lease_events(client::Endpoint endpoint);

}  // namespace sublet::kube
