// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "http/message.h"

#include <functional>
#include <string>

namespace sublet::http {

// Finds the lease that `name` (an id or a tag) means: among the live ones, else in the store; then `next` goes on with
// it. Tags are looked for among the caller's own first. A lease that is nowhere is NotFound, with the nearest name.
Reply with_lease(Call& call, const std::string& name, std::function<Reply(const core::Lease&)> next);

// The same for one that was live a moment ago, of which the store alone may know by now; `none`: it does not.
Later ended_lease(engine::Engine& engine, LeaseId id, Error none, std::function<Reply(const core::Lease&)> next);

bool has_token(const Request& request, const core::Lease& lease);
// The owner's own uid, an admin, or whoever has the lease's token.
Status may_act(const Request& request, const core::Lease& lease);

}  // namespace sublet::http
