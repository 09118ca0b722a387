// SPDX-License-Identifier: Apache-2.0
// Carries out preemption plans: asks the victims, one after the other.
#include "core/step_ask.h"
#include "core/step_pause.h"
#include "core/step_plan.h"
#include "core/step_preempt.h"
#include "core/step_resume.h"
#include "core/step_slices.h"
#include "core/step_spot.h"
#include "core/step_verify.h"
#include "state/format.h"
#include "state/host_check.h"
#include "state/ledger_set.h"
#include "state/methods.h"
#include "state/rank.h"
#include "state/reclaim.h"
#include "state/tenant_text.h"

#include <algorithm>

namespace sublet::core {
namespace {

constexpr Duration settling_pause = std::chrono::seconds(1);

}  // namespace

static bool ask(Step& step, Lease& victim, const PreemptionPlan& preemption);
static void forget_victim(Step& step, const PreemptionPlan& preemption, LeaseId victim);
static void ask_by_next(Step& step, Lease& victim, const PreemptionPlan& preemption);
static void refuse_set(Step& step, const PreemptionPlan& preemption, const std::string& beyond);
static const Reclaim* reclaim_of(const Step& step, const PreemptionPlan& preemption, const Lease& victim);

// Asks one victim after the other: the next when the one before is paused, or could not be. True: memory may be free at
// once.
bool advance(Step& step, const PreemptionPlan& preemption) {
  if (preemption.victims.empty() || waits_for_reading(step, preemption)) return false;
  if (somebody_yields(step, preemption.devices)) return false;
  // A victim whose method has just failed is asked by its next method before any other victim.
  const auto again =
      std::ranges::find_if(preemption.victims, [&step](const Victim& its) { return step.undone.contains(its.lease); });
  const Victim& first = again == preemption.victims.end() ? preemption.victims.front() : *again;
  Lease& victim = *find(step, first.lease);
  if (somebody_yields(step, victim.devices)) return false;
  if (victim.ended()) return false;  // for another preemptor, on another of its devices
  if (first.reclaim) {
    note_victim_asked(step, preemption, victim.id);
    step.plan.actions.emplace_back(ask_back(step.state, first, preemption.preemptor()));
    forget_victim(step, preemption, victim.id);
    return false;
  }
  if (first.ends) {
    note_victim_asked(step, preemption, victim.id);
    if (is_given_notice(step, victim, preemption)) return false;
    end_spot(step, victim, preemption);
    return true;
  }
  if (step.undone.contains(victim.id)) return ask_by_next(step, victim, preemption), false;
  return ask(step, victim, preemption);
}

// The first victim is asked only if host memory takes all of them. True: it is not asked, and other victims may be
// found.
static bool ask(Step& step, Lease& victim, const PreemptionPlan& preemption) {
  LeaseRuntime& runtime = step.state.leases.runtime.at(victim.id);
  // A lease that runs again in this very step is asked in the next one: a step stores one state of each lease.
  if (runtime.restored_at == step.now) return look_again_at(step, step.now + look_interval), false;
  if (const Status may = check_pause(step, victim, step.state.host.memory); !may) {
    leave_alone(step, victim, {ObstacleCode::not_begun, may.error().detail});
    return true;
  }
  const Lease& preemptor = *find(step.state, preemption.preemptor());
  const std::string beyond =
      beyond_ledger(step.state, step.rules, preemptor.uid, preemption.victims, step.state.host.memory);
  if (!beyond.empty()) return refuse_set(step, preemption, beyond), true;
  note_victim_asked(step, preemption, victim.id);
  const Reclaim* terms = reclaim_of(step, preemption, victim);
  const bool returns = terms == nullptr || terms->taken == Reclaim::Taken::turn;
  begin_pause(step, victim, cause_of(step, preemption, victim), returns);
  forget_victim(step, preemption, victim.id);
  return false;
}

// It was asked, and is no victim any more that is left.
static void forget_victim(Step& step, const PreemptionPlan& preemption, LeaseId victim) {
  for (PreemptionPlan& its : step.state.preemption.plans)
    if (its.devices == preemption.devices)
      std::erase_if(its.victims, [victim](const Victim& of) { return of.lease == victim; });
}

// The earlier method was undone a moment ago, and host memory was reported with that.
static void ask_by_next(Step& step, Lease& victim, const PreemptionPlan& preemption) {
  const auto undone = step.undone.find(victim.id);
  const auto next = attempt_in(step, victim).next;
  const auto methods = pause_methods_of(step.state, victim);
  const bool has = next && std::find(methods.begin(), methods.end(), *next) != methods.end();
  if (!has || !check_host(step.state, step.rules, victim, undone->second.host)) return;
  note_victim_asked(step, preemption, victim.id);
  Parking parking = std::move(undone->second.parking);
  victim.expires_at = undone->second.expires_at;
  step.undone.erase(undone);
  parking.told = false;
  parking.cause = cause_of(step, preemption, victim);
  note(step, "next_method");
  ask_to_yield(step, victim, *next, std::move(parking));
}

// Victims whose memory is not wanted any more, or that have it no more, are settled.
void settle_undone(Step& step) {
  for (const auto& [id, undone] : std::exchange(step.undone, {}))
    if (Lease* lease = find(step, id); lease != nullptr && lease->state == LeaseState::active) {
      lease->expires_at = undone.expires_at;
      runs_again(step, *lease, undone.parking);
    }
}

// The terms by which the victim is paused; null: its tier, a time slice or a request is the reason.
static const Reclaim* reclaim_of(const Step& step, const PreemptionPlan& preemption, const Lease& victim) {
  const Lease& preemptor = *find(step.state, preemption.preemptor());
  const bool by_tier = step.rules.automatic && outranks(preemptor, victim) && !is_protected(step.state, victim);
  if (preemption.cause != Cause::reclaim || by_tier) return nullptr;
  return reclaim_for(step.state, preemptor, victim);
}

// The cause is shown while the victim is paused, when the preemptor may be gone. So it has the request of the
// preemptor, and not the present state.
PauseCause cause_of(const Step& step, const PreemptionPlan& preemption, const Lease& victim) {
  const Lease& preemptor = *find(step.state, preemption.preemptor());
  const bool requested = PreemptionQuery{preemptor, preemptor.preemption_request}.by_request(victim);
  const Reclaim* terms = requested ? nullptr : reclaim_of(step, preemption, victim);
  if (terms != nullptr) return cause_of(*terms, preemptor, step.now);
  PauseCause cause{PauseCauseKind::slice, preemptor.id, args("preemptor", name_of(preemptor))};
  // In a time slice, leases of lower tiers may have to leave as well. So may they beside reclaimable leases.
  const bool below = preemption.cause != Cause::request && outranks(preemptor, victim);
  if (preemption.cause == Cause::quota) {
    cause.kind = PauseCauseKind::quota;
    cause.args.add(quota_args(step.state, preemptor, victim));
  } else if (preemption.cause == Cause::tier || below) {
    cause.kind = PauseCauseKind::tier;
    cause.args.add("tier", to_string(preemptor.tier));
  } else if (preemption.cause == Cause::request || (preemption.cause == Cause::reclaim && requested)) {
    const bool by_admin = is_admins(preemptor.preemption_request.value_or(PreemptionRequest{victim.uid}), victim);
    cause.kind = by_admin ? PauseCauseKind::admin_preemption : PauseCauseKind::owner_preemption;
  }
  cause.args.add(asked_args(preemptor));
  return cause;
}

// Without the victim that takes most host memory there may be a set that fits. Leases that are being parked may leave
// more of it free in a moment.
static void refuse_set(Step& step, const PreemptionPlan& preemption, const std::string& beyond) {
  const auto most = std::ranges::max_element(preemption.victims, {}, &Victim::enters);
  Lease& victim = *find(step, most->lease);
  leave_alone(step, victim, {ObstacleCode::not_begun, "it is not the only lease that would be paused: " + beyond});
  if (step.state.host.unsettled <= Bytes{}) return;
  Time& until = step.state.leases.runtime.at(victim.id).left_alone->until;
  until = std::min(until, step.now + settling_pause);
  look_again_at(step, until);
}

}  // namespace sublet::core
