// SPDX-License-Identifier: Apache-2.0
#include "explain/plan_ahead.h"

#include "core/step.h"
#include "explain/projection.h"

#include <algorithm>
#include <utility>

namespace sublet::explain {

using namespace core;

namespace {

const Lease& lease_after(const State& after, const Plan& plan) {
  if (const Lease* lease = find(after, *plan.outcome)) return *lease;
  return *std::ranges::find(plan.changed, *plan.outcome, &Lease::id);
}

// Leases that were ended at once, in the copy, for the new one. Here they run, and have their time to end.
void add_ended(std::vector<Yields>& yields, const State& state, const Plan& plan, const Rules& rules, Time now) {
  for (const Lease& lease : plan.changed) {
    const Lease* before = find(state, lease.id);
    const bool stops = lease.ended() || lease.stop_requested;
    if (before != nullptr && !before->ended() && !before->stop_requested && stops)
      yields.push_back({lease.id, true, now + stop_grace(lease, rules), {}});
  }
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
  for (int i = 0; i < count; ++i) {
    const Plan plan = step(after, rules, fact, now);
    if (!plan.outcome) return plan.outcome.error();
    PlannedStart& its = all.emplace_back();
    its.lease = lease_after(after, plan);
    add_ended(its.yields, state, plan, rules, now);
    if (its.lease.state != LeaseState::queued) its.at = its.yields.empty() ? now : its.yields.back().at;
  }
  Projections projections;
  Estimates estimates(after, rules, now, &projections);
  const auto projection = projections.of(after, rules, now);
  for (PlannedStart& its : all) {
    if (its.at) continue;
    its.queue = estimates.of(its.lease);
    const Projection::Start* start = projection->start_of(its.lease.id);
    if (start == nullptr) continue;
    its.at = start->at;
    its.lease.devices = start->devices;
    add_freed(its.yields, Projection::Start(*start), *projection, its.lease.id);
  }
  return all;
}

}  // namespace sublet::explain
