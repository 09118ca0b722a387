// SPDX-License-Identifier: Apache-2.0
// Leases of supervised programs: the common part of POST /v1/leases and POST /v1/programs.
#pragma once

#include "http/body.h"
#include "http/message.h"

namespace sublet::http {

// Checks the fields of a later POST /v1/leases by the caller, and whether the lease could ever be granted.
Status check_lease_request(Call& call, const json& body);
// TooLarge if no device has as much memory as this ceiling.
Status check_ceiling(const engine::Engine& engine, Bytes ceiling);
// Reads tier, pausable and priority, as far as the caller may have them.
Status take_rank(Body& body, const engine::Peer& peer, core::Lease& lease);

}  // namespace sublet::http
