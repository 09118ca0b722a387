// SPDX-License-Identifier: Apache-2.0
// The answer to a call that changed the records of a capability.
#pragma once

#include "engine/engine.h"
#include "http/message.h"

#include <functional>
#include <string_view>

namespace sublet::http {

// Stores what the call changed, and answers with `shown` once that is durable. `shown` is made after the capabilities
// have heard of what was decided for the call. `transition`: name of the change, one of core::all_transitions.
inline Reply stored(engine::Engine& engine, const engine::Remember& remember, std::string_view transition, int status,
                    const std::function<json()>& shown) {
  return as_json(engine.store_rows(transition, remember, [&] { return engine::Answered{status, shown().dump()}; }));
}

}  // namespace sublet::http
