// SPDX-License-Identifier: Apache-2.0
#include "core/portions.h"

#include "core/transitions.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace sublet::core {

std::vector<Plan> portions(Plan plan, std::size_t size) {
  std::vector<Plan> all;
  const std::size_t takers = plan.changed.size() - plan.givers;
  if (takers <= size) {
    all.push_back(std::move(plan));
    return all;
  }
  all.resize((takers + size - 1) / size);
  std::unordered_map<LeaseId, std::size_t> portion_of;
  for (std::size_t i = 0; i < plan.changed.size(); ++i) {
    const bool asked = plan.outcome.has_value() && plan.changed[i].id == *plan.outcome;
    const std::size_t portion = i < plan.givers || asked ? 0 : (i - plan.givers) / size;
    portion_of.emplace(plan.changed[i].id, portion);
    all[portion].changed.push_back(std::move(plan.changed[i]));
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
  for (Plan& portion : all) {
    portion.wake_at = plan.wake_at;
    if (&portion != &first) portion.transitions = {later_portion};
  }
  return all;
}

}  // namespace sublet::core
