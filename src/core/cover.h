// SPDX-License-Identifier: Apache-2.0
// The cheapest of those who could give something up that together give enough: a knapsack cover.
#pragma once

#include "base/units.h"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace sublet::core {

struct Giver {
  Bytes gain;       // that it gives up; who gives nothing is never chosen
  Duration cost{};  // not negative
};

// Up to so many are searched exhaustively (branch and bound); above, the best of two greedy orders, without whoever
// turned out not to be needed.
inline constexpr std::size_t searched_whole = 20;

// Indices of the chosen, the cheapest first; removing any one of them leaves too little. Of sets that cost the same the
// one with fewer, then with the earlier givers. Empty: nothing is needed. Unset: all together do not give `need`.
std::optional<std::vector<std::size_t>> cheapest_cover(std::span<const Giver> givers, Bytes need);

}  // namespace sublet::core
