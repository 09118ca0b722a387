// SPDX-License-Identifier: Apache-2.0
#include "core/commit_batches.h"

#include "core/transitions.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace sublet::core {

void each_commit_batch(Plan plan, std::size_t size, const std::function<void(Plan)>& take) {
  const std::size_t takers = plan.changed.size() - plan.givers;
  if (takers <= size) return take(std::move(plan));
  std::vector<Plan> all((takers + size - 1) / size);
  std::vector<std::vector<std::size_t>> places(all.size());
  std::unordered_map<LeaseId, std::size_t> portion_of;
  portion_of.reserve(plan.changed.size());
  for (std::size_t i = 0; i < plan.changed.size(); ++i) {
    const bool asked = plan.outcome.has_value() && plan.changed[i].id == *plan.outcome;
    const std::size_t portion = i < plan.givers || asked ? 0 : (i - plan.givers) / size;
    portion_of.emplace(plan.changed[i].id, portion);
    places[portion].push_back(i);
  }
  for (Reason& reason : plan.reasons) {
    const auto found = portion_of.find(reason.lease);
    all[found == portion_of.end() ? 0 : found->second].reasons.push_back(std::move(reason));
  }
  Plan& first = all.front();
  first.outcome = std::move(plan.outcome);
  first.givers = plan.givers;
  first.settled = std::move(plan.settled);
  first.learned = std::move(plan.learned);
  first.records = std::move(plan.records);
  first.grants = std::move(plan.grants);
  first.transitions = std::move(plan.transitions);
  all.back().actions = std::move(plan.actions);
  for (std::size_t portion = 0; portion < all.size(); ++portion) {
    Plan& next = all[portion];
    next.wake_at = plan.wake_at;
    if (portion > 0) next.transitions = {later_portion};
    next.changed.reserve(places[portion].size());
    for (const std::size_t i : places[portion]) next.changed.push_back(std::move(plan.changed[i]));
    take(std::move(next));
  }
}

std::vector<Plan> commit_batches(Plan plan, std::size_t size) {
  std::vector<Plan> all;
  each_commit_batch(std::move(plan), size, [&all](Plan portion) { all.push_back(std::move(portion)); });
  return all;
}

}  // namespace sublet::core
