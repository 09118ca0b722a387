// SPDX-License-Identifier: Apache-2.0
// The least size of a lease, and sizes that a user types again. `format_size` rounds to the nearest, so its text for a
// limit may lie beyond the limit.
#pragma once

#include "base/units.h"

#include <string>
#include <utility>

namespace sublet {

inline constexpr Bytes least_lease = KiB;  // a smaller number lacks its unit

std::string format_size_down(Bytes bytes);  // "3.6 GiB" of 3.65: a maximum to ask for, or free memory
std::string format_size_up(Bytes bytes);    // "3.7 GiB" of 3.65: a minimum to ask for

// Formats two sizes for the same sentence, the larger first. Their texts differ if the sizes differ.
std::pair<std::string, std::string> format_sizes_apart(Bytes larger, Bytes smaller);
// The same for measured sizes: where the texts would be equal, a smaller unit is taken ("1026 MiB", "1024 MiB").
std::pair<std::string, std::string> format_sizes_finely(Bytes larger, Bytes smaller);

}  // namespace sublet
