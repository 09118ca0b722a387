// SPDX-License-Identifier: Apache-2.0
// The bugs that are planted in sim_planted, and what each does.
#pragma once

#include "config.h"

#include "base/planted.h"

#include <span>
#include <string_view>

namespace sublet::sim {

struct BugInfo {
  Bug bug;
  std::string_view name;  // by which it is asked for
  const char* where;      // "core", "engine" or "store"
  const char* what;
  // In what worlds it can show at all; in others it is not looked for. Unset: in all.
  bool (*can_show)(const Config&) = nullptr;
};

std::span<const BugInfo> planted_bugs();
const BugInfo* find_bug(std::string_view name);  // null: there is none of that name

}  // namespace sublet::sim
