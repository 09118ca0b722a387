// SPDX-License-Identifier: Apache-2.0
// The cheapest set of candidates that frees enough: a knapsack cover.
#pragma once

#include "base/units.h"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace sublet::core {

struct Candidate {
  Bytes frees;      // bytes that it frees; a candidate that frees nothing is never chosen
  Duration cost{};  // not negative
};

// Up to this many candidates are searched exhaustively (branch and bound). Above, the better of two greedy orders is
// taken, without needless candidates.
inline constexpr std::size_t searched_whole = 20;

// Indices of the chosen candidates, the cheapest first; without any one of them the set frees too little. Between sets
// with the same cost, fewer candidates win, then earlier candidates. Empty: nothing is needed. Unset: all of them free
// less than `need`.
std::optional<std::vector<std::size_t>> cheapest_cover(std::span<const Candidate> candidates, Bytes need);

}  // namespace sublet::core
