// SPDX-License-Identifier: Apache-2.0
// The bugs that are planted in sim_planted, and what each does.
#pragma once

#include "base/planted.h"

#include <span>

namespace sublet::sim {

struct BugInfo {
  Bug bug;
  const char* where;  // "core", "engine" or "store"
  const char* what;
};

std::span<const BugInfo> planted_bugs();

}  // namespace sublet::sim
