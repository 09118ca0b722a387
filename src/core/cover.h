// SPDX-License-Identifier: Apache-2.0
// The cheapest set of candidates that frees enough: a knapsack cover.
#pragma once

#include "base/units.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sublet::core {

struct Candidate {
  Bytes frees;      // bytes that it frees; a candidate that frees nothing is never chosen
  Duration cost{};  // not negative
  // Bytes of the budget that the candidate takes while it frees its bytes, and afterwards. The chosen candidates free
  // their bytes one after the other, the cheapest first.
  Bytes budget_now = {}, budget_later = {};
  std::uint32_t user = 0;
  Bytes for_user = Bytes{std::int64_t{1} << 61};  // the budget of all candidates of that user
};

// Up to this many candidates are searched exhaustively (branch and bound). Above, the better of two greedy orders is
// taken, without needless candidates.
inline constexpr std::size_t searched_whole = 20;

// Indices of the chosen candidates, the cheapest first; without any one of them the set frees too little. Between sets
// with the same cost, fewer candidates win, then earlier candidates. Empty: nothing is needed. Unset: no set within the
// budgets, in all and for each user, frees `need`. If the budgets are tight and the candidates many, not all sets are
// tried.
std::optional<std::vector<std::size_t>> cheapest_cover(std::span<const Candidate> candidates, Bytes need,
                                                       std::optional<Bytes> place = {});

}  // namespace sublet::core
