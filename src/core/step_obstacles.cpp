// SPDX-License-Identifier: Apache-2.0
// Notes for a waiter why the leases that its tier or request reaches cannot be paused for it. The note stays in its
// history when the obstacle is gone.
#include "core/step_obstacles.h"
#include "core/current_step.h"
#include "core/victims.h"
#include "state/format.h"

namespace sublet::core {
namespace {

constexpr std::size_t obstacles_named = 3;
constexpr Duration looked_for_every = std::chrono::seconds(1);  // finding them costs as much as a plan

std::string_view word_for(IneligibleCode code) {
  return code == IneligibleCode::cooldown ? "cooldown" : code == IneligibleCode::stuck ? "stuck" : "obstacle";
}

bool is_obstacle(IneligibleCode code) {
  return code == IneligibleCode::obstacle || code == IneligibleCode::cooldown || code == IneligibleCode::stuck;
}

}  // namespace

void note_obstacles(Step& step, const Lease& waiter) {
  LeaseRuntime& runtime = step.state.leases.runtime.at(waiter.id);
  if (step.now < runtime.obstacles_at + looked_for_every) return;
  runtime.obstacles_at = step.now;
  const PreemptionQuery query{waiter, waiter.preemption_request};
  const VictimPlan plan = plan_victims(step.state, step.rules, query, step.now);
  if (plan.found) return;
  std::vector<std::string> leases, codes;
  std::vector<std::string> texts;
  Bytes bytes;
  for (const Ineligible& ineligible : plan.ineligible) {
    const Lease& lease = *find(step.state, ineligible.lease);
    if (!is_obstacle(ineligible.code) || !query.reaches(lease)) continue;
    leases.push_back(to_string(lease.id));
    codes.emplace_back(word_for(ineligible.code));
    bytes += lease.reserved();
    if (texts.size() < obstacles_named)
      texts.push_back(name_of(lease) + ": " + ineligible_text(step.state, step.rules, query, ineligible, step.now));
  }
  if (plan.no_victims.code == NoVictims::Code::beyond_ledger) {
    codes.emplace_back("ledger");
    texts.push_back(no_victims_text(step.state, step.rules, query, plan.no_victims));
  }
  if (codes.empty() || (runtime.obstacle_leases == leases && runtime.obstacle_codes == codes)) return;
  runtime.obstacle_leases = leases;
  runtime.obstacle_codes = codes;
  std::string obstacles = texts.front();
  for (std::size_t i = 1; i < texts.size(); ++i) obstacles += "; " + texts[i];
  explain(step, waiter, ReasonKind::preemption_obstructed,
          args("obstacles", std::move(obstacles), "leases", std::move(leases), "codes", std::move(codes), "held", bytes,
               "needs", waiter.least()));
}

}  // namespace sublet::core
