// SPDX-License-Identifier: Apache-2.0
// Follows the daemon's events, on a thread of its own.
#pragma once

#include "base/fd.h"
#include "client/endpoint.h"

#include <memory>

namespace sublet::kube {

// Descriptors that are readable after an event. Read 8 bytes from one to wait for the next event.
struct Events {
  Fd leases;  // of a lease; also after each connection to a daemon, before which events may be missing
  Fd cards;   // of a card or of a process without a lease
};

// The thread lives as long as the process.
std::shared_ptr<Events> follow_events(client::Endpoint endpoint);

}  // namespace sublet::kube
