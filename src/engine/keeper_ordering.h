// SPDX-License-Identifier: Apache-2.0
// The order of one keeper: given once, after the row that names it is durable. Belongs to the loop thread.
#pragma once

#include "engine/engine.h"
#include "engine/records.h"
#include "machine/keepers.h"

namespace sublet::engine {

struct KeeperOrdering {
  std::uint64_t start = 0;  // number of the start; an earlier one's is void
  bool ordered = false;
  Time ordered_at{};
  ProcessRef keeper{};  // once it is known
};

// order: give the order now. starts: it was given, and its keeper may live. lost: its keeper has ended. away: keepers
// cannot be started now. not_durable: the record of the start is not durable yet.
enum class OrderStep { order, starts, lost, away, not_durable };

template <typename Key>
OrderStep next_order_step(KeeperOrdering& ordering, std::uint64_t start, const Key& key, Records<Key>& records,
                          const Engine& engine, const machine::Keepers& keepers) {
  if (ordering.start != start) ordering = {.start = start};
  if (ordering.ordered)
    return !ordering.keeper || engine.programs().lives(ordering.keeper) ? OrderStep::starts : OrderStep::lost;
  if (!keepers.ready()) return OrderStep::away;
  if (!records.is_durable(key)) return OrderStep::not_durable;
  ordering.ordered = true;
  ordering.ordered_at = engine.now();
  return OrderStep::order;
}

}  // namespace sublet::engine
