// SPDX-License-Identifier: Apache-2.0
// The condition of a device in the API. Pure functions, any thread.
#pragma once

#include "gpu/condition.h"

#include <nlohmann/json.hpp>

namespace sublet::http {

// The schema Condition: each figure, null if it is not known. `facts` may be null.
nlohmann::json render_condition(const gpu::Facts* facts);

}  // namespace sublet::http
