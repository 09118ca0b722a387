// SPDX-License-Identifier: Apache-2.0
// Requests for a lease: the common part of POST /v1/leases and POST /v1/free.
#pragma once

#include "http/body.h"
#include "http/message.h"
#include "http/secrets.h"
#include "idle/rule.h"

namespace sublet::http {

struct LeaseCall {
  core::Submit submit;
  Duration wait{};  // time that the answer may wait for the grant
  Secret token;
  // Set if a supervised program's keeper asks: the tag, and the number of the start.
  std::optional<std::pair<std::string, std::uint64_t>> program = {};
  // Set if the keeper of a session asks: the number of the session, and that of the start.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> session = {};
  idle::Rule idle = {};   // the lease's own idle rule
  std::string more = {};  // a further field of the answer as JSON, `"name":value`; "" for none
};

// Reads `device`: gpu0, 0, a uuid or the start of one; nothing or "any" leaves the device open.
Status take_device(Body& body, const core::State& state, core::Lease& lease);

// Reads the body of a later POST /v1/leases by the caller. The lease gets a new token.
Result<LeaseCall> read_lease_request(Call& call, const json& body);

// An error if the user has reached limits.leases.
Status check_lease_limit(const engine::Engine& engine, const engine::Peer& peer);

// Creates the lease and answers: 201 active, 202 queued.
Reply submit(Call& call, LeaseCall asked);

}  // namespace sublet::http
