// SPDX-License-Identifier: Apache-2.0
// The actor's side of its socket: one order, one reply, until the peer closes it.
#pragma once

#include "actor/service.h"

#include <cstdint>
#include <optional>

namespace sublet::actor {

// Serves the peer of a connected SOCK_SEQPACKET socket, and looks after `helpers` meanwhile, if any. 0: the peer closed
// it. 1: the socket failed.
int serve(int socket, Service& service, Helpers* helpers);

// Accepts one peer after the other, each served until it goes. Who connects must be root or `user`, and gets no answer
// otherwise. Returns 1 when the listening socket fails; else never.
int listen_for(int listener, std::uint32_t user, const proc::ProcRoot& root, const ServiceOptions& options);

}  // namespace sublet::actor
