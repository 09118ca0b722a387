// SPDX-License-Identifier: Apache-2.0
// Advice about a failed pause. Pure; any thread.
#pragma once

#include <string_view>

namespace sublet::pause {

// Returns advice about the `code` of a ParkOutcome; "": none. If no method is left, the lease itself has the advice.
std::string_view park_hint(std::string_view code);

}  // namespace sublet::pause
