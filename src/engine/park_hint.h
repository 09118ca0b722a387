// SPDX-License-Identifier: Apache-2.0
// What can be done about a pause of which nothing came. Pure; any thread.
#pragma once

#include <string_view>

namespace sublet::engine {

// `code`: of a ParkOutcome. What it goes on to need is said by the lease itself where no method is left. "": nothing.
std::string_view park_hint(std::string_view code);

}  // namespace sublet::engine
