// SPDX-License-Identifier: Apache-2.0
// The actor's side of its socket: an order, then a reply, until the peer closes it.
#pragma once

#include "actor/service.h"

#include <cstdint>
#include <optional>

namespace sublet::actor {

// Serves the peer of a connected SOCK_SEQPACKET socket, and meanwhile sweeps `helpers` and drains `links` (either may
// be null). Returns 0 if the peer closed the socket, 1 if the socket failed.
int serve(int socket, Service& service, Helpers* helpers, LinkSources* links = nullptr);

// Accepts peers in sequence, and serves each until it goes. A peer must be root or `user`; others get no answer.
// Returns 1 if the listening socket fails; else never.
int listen_for(int listener, std::uint32_t user, const proc::ProcRoot& root, const ServiceOptions& options);

}  // namespace sublet::actor
