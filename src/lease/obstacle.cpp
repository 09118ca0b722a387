// SPDX-License-Identifier: Apache-2.0
#include "lease/obstacle.h"

#include <algorithm>
#include <array>

namespace sublet::core {
namespace {

constexpr auto kinds = std::to_array<ObstacleKind>({
#define SUBLET_OBSTACLE(code, scope, lasts, blames, hint) \
  {ObstacleCode::code, #code, ObstacleScope::scope, ObstacleLasts::lasts, blames, hint},
#include "lease/obstacles.inc"
#undef SUBLET_OBSTACLE
});

}  // namespace

const ObstacleKind& kind_of(ObstacleCode code) { return kinds.at(static_cast<std::size_t>(code)); }

std::string_view to_string(ObstacleCode code) { return kind_of(code).word; }

std::optional<ObstacleCode> parse_obstacle(std::string_view word) {
  const auto found = std::ranges::find(kinds, word, &ObstacleKind::word);
  return found == kinds.end() ? std::nullopt : std::optional(found->code);
}

}  // namespace sublet::core
