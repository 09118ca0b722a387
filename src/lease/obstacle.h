// SPDX-License-Identifier: Apache-2.0
// Obstacles: why a lease cannot be paused now. One table has all of them; a new one is a line in obstacles.inc, and the
// place that finds it.
#pragma once

#include "base/units.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::core {

enum class ObstacleCode : std::uint8_t {
#define SUBLET_OBSTACLE(code, scope, lasts, blames, hint) code,
#include "lease/obstacles.inc"
#undef SUBLET_OBSTACLE
};

// The subject of an obstacle, if it lasts: all pauses of a lease, pauses of its program by the driver, or all pauses by
// the driver on this machine.
enum class ObstacleScope : std::uint8_t { lease, program, machine };

// How long it lasts. `until_granted`: until the owner vouches for the program. `always`: as long as the program.
// `always_if_repeated`: if it is found twice in a row; the first time it may be by chance.
enum class ObstacleLasts : std::uint8_t { moment, minutes, until_granted, always_if_repeated, always };

struct ObstacleKind {
  ObstacleCode code;
  std::string_view word;
  ObstacleScope scope;
  ObstacleLasts lasts;
  bool blames;  // the program is to blame
  std::string_view hint;
};

const ObstacleKind& kind_of(ObstacleCode code);
std::string_view to_string(ObstacleCode code);
std::optional<ObstacleCode> parse_obstacle(std::string_view word);

// An obstacle that was found.
struct Obstacle {
  ObstacleCode code = ObstacleCode::none;
  std::string detail = {};     // one sentence
  std::string hint = {};       // what can be done about it; "": what its kind says
  Time until = Time::never();  // when it is examined again
  bool operator==(const Obstacle&) const = default;
  const ObstacleKind& kind() const { return kind_of(code); }
  std::string_view advice() const { return hint.empty() ? kind().hint : std::string_view(hint); }
};

}  // namespace sublet::core
