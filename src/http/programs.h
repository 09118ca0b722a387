// SPDX-License-Identifier: Apache-2.0
// Supervised programs: the common part of their resources, and of POST /v1/leases and POST /v1/programs.
#pragma once

#include "http/body.h"
#include "http/message.h"

#include <string>

namespace sublet::guard {
struct Program;
}

namespace sublet::http {

// The program of that tag, of the caller or, as "USER/TAG", of another user. An error if the caller may not act for the
// program's user. The guard owns the program.
Result<const guard::Program*> find_program(const Call& call, const std::string& name, bool to_read = false);

// Checks the fields of a later POST /v1/leases by the caller, and whether the lease could ever be granted.
Status check_lease_request(Call& call, const json& body);
// Reads tier, pausable and priority, as far as the caller may have them.
Status take_rank(Body& body, const engine::Peer& peer, core::Lease& lease);

}  // namespace sublet::http
