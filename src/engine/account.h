// SPDX-License-Identifier: Apache-2.0
// What the account database says of who comes. It may be a network service, and hang: nobody waits for it for long.
#pragma once

#include "base/aside.h"

#include <cstdint>
#include <string>

namespace sublet::engine {

// Asks the database for all; loop thread only.
AsideThread& accounts_thread();
constexpr std::int64_t accounts_patience_ns = 250'000'000;

// The account's name, or the uid as text where there is none, or none is known yet. Remembers a name for good, and for
// a minute that there is none; loop thread only.
std::string account_name(std::uint32_t uid);

}  // namespace sublet::engine
