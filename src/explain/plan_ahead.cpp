// SPDX-License-Identifier: Apache-2.0
#include "explain/plan_ahead.h"

#include "core/step.h"
#include "explain/dry_run.h"
#include "explain/projection.h"

#include <algorithm>
#include <set>
#include <utility>

namespace sublet::explain {

using namespace core;

namespace {

// Leases that the step for the new one ended at once, in the copy. Here they run, and have their time to end. `ended`:
// those of earlier steps.
void add_ended(std::vector<Yields>& yields, std::set<LeaseId>& ended, const State& state, const Plan& plan,
               const Rules& rules, Time now) {
  for (const Lease& lease : plan.changed) {
    const Lease* before = find(state, lease.id);
    const bool stops = lease.ended() || lease.stop_requested;
    if (before == nullptr || before->ended() || before->stop_requested || !stops) continue;
    if (ended.insert(lease.id).second) yields.push_back({lease.id, true, now + stop_grace(lease, rules), {}});
  }
}

// All of them have ended by then at the latest.
std::optional<Time> latest_of(const std::vector<Yields>& yields) {
  if (yields.empty()) return std::nullopt;
  return std::ranges::max_element(yields, {}, &Yields::at)->at;
}

// Leases that gave their memory to the planned one in the projection. One that ends by itself does not yield.
void add_freed(std::vector<Yields>& yields, const Projection::Start& start, Projection& projection, LeaseId planned) {
  for (const Projection::Freed& freed : start.last) {
    const bool for_it = freed.cause && freed.cause->preemptor == planned;
    const bool ended = !freed.cause && freed.basis == Basis::nothing;
    if (!for_it && !ended && !freed.gives_back) continue;
    if (std::ranges::find(yields, freed.lease, &Yields::lease) != yields.end()) continue;
    yields.push_back({freed.lease, !for_it, freed.at, for_it ? projection.return_of(freed.lease) : std::nullopt});
  }
}

}  // namespace

Result<std::vector<PlannedStart>> plan_ahead(const State& state, const Rules& rules, const Submit& fact, int count,
                                             Time now) {
  State after = state;
  std::vector<PlannedStart> all;
  std::set<LeaseId> ended;
  for (int i = 0; i < count; ++i) {
    const Plan plan = step(after, rules, fact, now);
    if (!plan.outcome) return plan.outcome.error();
    PlannedStart& its = all.emplace_back();
    its.lease = outcome_of(after, plan);
    add_ended(its.yields, ended, state, plan, rules, now);
    if (its.lease.state != LeaseState::queued) its.at = latest_of(its.yields).value_or(now);
  }
  Projections projections;
  Estimates estimates(after, rules, now, &projections);
  const auto projection = projections.of(after, rules, now);
  for (PlannedStart& its : all) {
    if (its.at) continue;
    its.queue = estimates.of(its.lease);
    const Projection::Start* start = projection->start_of(its.lease.id);
    if (start == nullptr) {
      its.at = latest_of(its.yields);
      if (its.at) its.queue.basis = ended_for_it_text(*find(state, its.yields.front().lease));
      continue;
    }
    its.at = start->at;
    its.lease.devices = start->devices;
    add_freed(its.yields, Projection::Start(*start), *projection, its.lease.id);
  }
  return all;
}

}  // namespace sublet::explain
