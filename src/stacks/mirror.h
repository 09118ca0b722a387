// SPDX-License-Identifier: Apache-2.0
// The state file of the one-stack service: written for readers of that file, and read once when Sublet takes over.
#pragma once

#include "base/error.h"
#include "stacks/slot.h"

#include <string>

namespace sublet::stacks {

// The text of state.json. Without the tokens, which are secrets; times are whole Unix seconds.
std::string mirror_text(const Slot& slot, Time now);

// Writes `text` beside `path` and renames it. Blocks for a moment; the file is not synced, since the store is the
// truth.
Status write_mirror(const std::string& path, const std::string& text);

// The slot that a state.json of the service describes. The holder's time begins again when its stack is ready. An error
// names the file.
Result<Slot> read_service_state(const std::string& path, const std::string& text, Time now);

}  // namespace sublet::stacks
