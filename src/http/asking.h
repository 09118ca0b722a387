// SPDX-License-Identifier: Apache-2.0
// Asking for a lease: what POST /v1/leases and POST /v1/free have in common.
#pragma once

#include "http/body.h"
#include "http/message.h"
#include "http/secrets.h"

namespace sublet::http {

struct Asked {
  core::Submit submit;
  Duration wait{};  // the answer may take so long
  Secret token;
  std::string more = {};  // `"name":value` of a further field of the answer, as JSON; "" for none
};

// A device is asked for as gpu0, 0, a uuid or the beginning of one; nothing or "any" leaves it open.
Status take_device(Body& body, const core::State& state, core::Lease& lease);

// Whether the user may have one more lease.
Status may_have_more(const engine::Engine& engine, const engine::Peer& peer);

// Makes the lease and answers: 201 active, 202 queued.
Reply submit(Call& call, Asked asked);

}  // namespace sublet::http
