// SPDX-License-Identifier: Apache-2.0
// The account names of users. The account database may be a network service and may hang, so callers wait only briefly.
#pragma once

#include <cstdint>
#include <string>

namespace sublet::engine {

// Returns the account's name, or the uid as text if there is no account or no answer yet. A name is remembered for
// good, a missing account for a minute. A separate thread asks, so that questions about rights need not wait for names.
// Loop thread only.
std::string account_name(std::uint32_t uid);

}  // namespace sublet::engine
