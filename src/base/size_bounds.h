// SPDX-License-Identifier: Apache-2.0
// The least size of a lease, and sizes that somebody types again: `format_size` rounds to the nearest, and what it
// prints of a bound may lie beyond it.
#pragma once

#include "base/units.h"

#include <string>
#include <utility>

namespace sublet {

inline constexpr Bytes least_lease = KiB;  // no VRAM is meant by less: what is missing is a unit

std::string format_size_down(Bytes bytes);  // "3.6 GiB" of 3.65: what may be asked for at most, what is free
std::string format_size_up(Bytes bytes);    // "3.7 GiB" of 3.65: what must be asked for at least

// Of two in one sentence, the larger first: they do not look the same where the difference is what it is about.
std::pair<std::string, std::string> format_sizes_apart(Bytes larger, Bytes smaller);

}  // namespace sublet
