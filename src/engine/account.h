// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace sublet::engine {

// The account's name, or the uid as text where there is none. Remembers a name for good, and for a minute that there is
// none; loop thread only.
std::string account_name(std::uint32_t uid);

}  // namespace sublet::engine
