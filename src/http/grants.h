// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "http/message.h"

namespace sublet::http {

inline constexpr int most_grants = 1000;  // maximum per user

// All grants, ordered by uid and consumer.
json render_grants(const engine::Engine& engine);

}  // namespace sublet::http
