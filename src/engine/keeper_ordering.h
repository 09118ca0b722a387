// SPDX-License-Identifier: Apache-2.0
// The order of one keeper: given once, after the row that names it is durable. Belongs to the loop thread.
#pragma once

#include "engine/engine.h"
#include "engine/keepers.h"

namespace sublet::engine {

struct KeeperOrdering {
  std::uint64_t start = 0;  // number of the start; an earlier one's is void
  std::uint64_t after = 0;  // batch that must be durable before the keeper is ordered; 0: not known yet
  bool ordered = false;
  Time ordered_at{};
  ProcessRef keeper{};  // once it is known

  // It waits for this batch or an earlier one.
  bool waits_for(std::uint64_t sequence) const { return !ordered && after != 0 && after <= sequence; }
};

// order: give the order now. starts: it was given, and its keeper may live. lost: its keeper has ended. away: keepers
// cannot be started now. not_stored: the row is not handed to the store yet. not_durable: Capability::committed
// follows.
enum class OrderStep { order, starts, lost, away, not_stored, not_durable };

// `is_stored`: the row of this start was handed to the store.
inline OrderStep next_order_step(KeeperOrdering& ordering, std::uint64_t start, bool is_stored, const Engine& engine,
                                 const Keepers& keepers) {
  if (ordering.start != start) ordering = {.start = start};
  if (ordering.ordered)
    return !ordering.keeper || engine.programs().lives(ordering.keeper) ? OrderStep::starts : OrderStep::lost;
  if (!keepers.ready()) return OrderStep::away;
  if (!is_stored) return OrderStep::not_stored;
  if (ordering.after == 0) ordering.after = engine.intended();
  if (!engine.is_durable(ordering.after)) return OrderStep::not_durable;
  ordering.ordered = true;
  ordering.ordered_at = engine.now();
  return OrderStep::order;
}

}  // namespace sublet::engine
