// SPDX-License-Identifier: Apache-2.0
// The state file of the one-stack service: written for readers of that file, and read once when Sublet takes over.
#pragma once

#include "base/error.h"
#include "stacks/slot.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

namespace sublet::stacks {

// Whole Unix seconds; a part of a second counts as one, so that no time is announced that is already over.
std::int64_t unix_second(Time time);

// The state that callers of the service know, without the tokens, which are secrets.
nlohmann::json service_state(const Slot& slot, Time now);
// The text of state.json. `with_tokens`: as the service itself writes it, so that the service can go on from it.
std::string mirror_text(const Slot& slot, bool with_tokens, Time now);

// The slot that a state.json of the service describes. The holder's time begins again when its stack is ready. An error
// names the file.
Result<Slot> read_service_state(const std::string& path, const std::string& text, Time now);

}  // namespace sublet::stacks
