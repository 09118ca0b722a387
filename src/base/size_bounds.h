// SPDX-License-Identifier: Apache-2.0
// Sizes that somebody types again: `format_size` rounds to the nearest, and what it prints of a bound may lie beyond
// it.
#pragma once

#include "base/units.h"

namespace sublet {

std::string format_size_down(Bytes bytes);  // "3.6 GiB" of 3.65: what may be asked for at most, what is free
std::string format_size_up(Bytes bytes);    // "3.7 GiB" of 3.65: what must be asked for at least

}  // namespace sublet
