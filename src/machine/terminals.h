// SPDX-License-Identifier: Apache-2.0
// Short messages on the terminals of a user, as write(1) does it. Never waits; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sublet::machine {

// Writes one line to each pseudo-terminal of the user that takes messages (`mesg y`). The text is made printable.
// Returns the number of terminals. `directory`: where the terminals are.
int write_to_terminals(std::uint32_t uid, std::string_view text, const std::string& directory = "/dev/pts");

}  // namespace sublet::machine
