// SPDX-License-Identifier: Apache-2.0
// What the account database calls who comes. It may be a network service, and hang: nobody waits for it for long.
#pragma once

#include <cstdint>
#include <string>

namespace sublet::engine {

// The account's name, or the uid as text where there is none, or none is known yet. Remembers a name for good, and for
// a minute that there is none. Names are asked for on a thread of their own, so that nobody's rights have to wait for
// them; loop thread only.
std::string account_name(std::uint32_t uid);

}  // namespace sublet::engine
