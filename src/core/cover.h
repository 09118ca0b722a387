// SPDX-License-Identifier: Apache-2.0
// The cheapest of those who could give something up that together give enough: a knapsack cover.
#pragma once

#include "base/units.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sublet::core {

struct Candidate {
  Bytes frees;      // that it gives up; who gives nothing is never chosen
  Duration cost{};  // not negative
  // Of the place that there is for what is given up: what it takes for as long as it gives up, and from then on. Those
  // who are chosen give up one after the other, the cheapest first.
  Bytes budget_now = {}, budget_later = {};
  std::uint32_t user = 0;
  Bytes for_user = Bytes{std::int64_t{1} << 61};  // what there is for all candidates of that user
};

// Up to so many are searched exhaustively (branch and bound); above, the best of two greedy orders, without whoever
// turned out not to be needed.
inline constexpr std::size_t searched_whole = 20;

// Indices of the chosen, the cheapest first; removing any one of them leaves too little. Of sets that cost the same the
// one with fewer, then with the earlier candidates. Empty: nothing is needed. Unset: no set for which there is place,
// in all and for each user, gives `need`; where it is tight, and many could give, not all sets are tried.
std::optional<std::vector<std::size_t>> cheapest_cover(std::span<const Candidate> candidates, Bytes need,
                                                       std::optional<Bytes> place = {});

}  // namespace sublet::core
