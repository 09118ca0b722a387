// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "http/message.h"

#include <functional>
#include <string>

namespace sublet::http {

// Finds the lease that `name` (an id or a tag) means: among the live ones, else in the store; then `next` goes on with
// it. Tags are looked for among the caller's own first. A lease that is nowhere is NotFound, with the nearest name.
Reply with_lease(Call& call, const std::string& name, std::function<Reply(const core::Lease&)> next);

}  // namespace sublet::http
