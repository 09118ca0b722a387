// SPDX-License-Identifier: Apache-2.0
// Decides which leases are ineligible as victims at this moment, and why.
#include "base/mutants.h"
#include "core/slices.h"
#include "core/victims.h"
#include "state/format.h"
#include "state/ledger_set.h"
#include "state/rank.h"
#include "state/reclaim.h"
#include "state/tenant_rights.h"

#include <algorithm>

namespace sublet::core {
namespace {

// A lease with memory from a preemption request is no victim for the leases that had to wait for the request. So no two
// leases displace each other back and forth. All other preemptors leave it the time of a time slice.
std::optional<Ineligible> keeps_its_word(const State& state, const Rules& rules, const PreemptionQuery& query,
                                         const Lease& lease, Time now) {
  if (!lease.preemption_request || query.by_request(lease)) return std::nullopt;
  const Lease& preemptor = query.lease;
  // A failed pause does not renew the protection: older waiters may preempt the lease again.
  const Time given_at = lease.preemption_request->given_at.value_or(lease.granted_at.value_or(Time{}));
  const Time since = standing_of(state, lease.id).came_back;
  const bool reached = lease.preemption_request->any_user || lease.preemption_request->uid == preemptor.uid;
  if (reached && preemptor.id && preemptor.waits_since() <= given_at)
    return Ineligible{lease.id, IneligibleCode::keeps_request};
  const Time until = since + residency(state, rules, lease, lease.devices);
  if (preemptor.tier == Tier::critical || now >= until) return std::nullopt;
  return Ineligible{lease.id, IneligibleCode::keeps_request_for, until};
}

std::string left_alone_text(const Standing& standing, const Obstacle& left_alone, Time now) {
  const std::string ago = format_duration(now - standing.tried_at) + " ago", why = ": " + left_alone.detail;
  const std::string until = format_duration(left_alone.until - now);
  if (left_alone.kind().blames) return "its last pause failed " + ago + ", so it is ineligible for " + until + why;
  const bool begun = left_alone.code != ObstacleCode::not_begun;
  return (begun ? "its last pause was undone " : "its pause could not begin ") + ago +
         ", and the next pause is possible in " + until + why;
}

}  // namespace

bool PreemptionQuery::reaches(const Lease& other) const {
  const bool by_rank = outranks(lease, other) || (by_quota && ranks_like(lease, other));
  return by_request(other) || (by_rules && (by_rank || mutant(Mutant::anybody_yields)));
}

PreemptionQuery within_quota(const State& state, PreemptionQuery query) {
  query.by_quota = query.by_rules && query.lease.id && is_within_quota(state, query.lease);
  return query;
}

// A lease within its guarantee yields to requests, and by tier to leases that are within theirs.
bool needs_borrowed(const PreemptionQuery& query, const Lease& lease) {
  return !query.by_request(lease) && !(query.by_quota && outranks(query.lease, lease));
}

bool passed_over(const State& state, LeaseId id) { return is_stuck(state, id); }

std::optional<Ineligible> ineligible(const State& state, const Rules& rules, const PreemptionQuery& query,
                                     const Lease& lease, const WayToYield& way, Time now) {
  const auto because = [&](IneligibleCode code, Time until = Time::never()) {
    return Ineligible{lease.id, code, until};
  };
  const bool unresponsive = does_not_go_on(state, rules, lease, now);  // nothing comes of waiting for it
  if (lease.state == LeaseState::resuming && !lease.parking->then_stop && !is_stuck(state, lease.id) && !unresponsive) {
    if (!query.patient) return because(IneligibleCode::resuming);
  } else if (lease.state != LeaseState::active && !unresponsive) {
    return because(is_stuck(state, lease.id) ? IneligibleCode::stuck : IneligibleCode::inactive);
  }
  if (lease.stop_requested) return because(IneligibleCode::ending);
  const Reclaim* terms = query.reclaims ? reclaim_for(state, query.lease, lease) : nullptr;
  const bool is_paused = terms == nullptr || terms->is_paused();
  if (is_paused && way.kind == WayToYield::Kind::none) return because(IneligibleCode::obstacle, way.until);
  const bool by_request = query.by_request(lease);
  if (terms == nullptr && !query.reaches(lease))
    return because(query.by_rules ? IneligibleCode::tier : IneligibleCode::not_requesters);
  if (terms == nullptr && needs_borrowed(query, lease) && is_protected(state, lease))
    return because(IneligibleCode::guaranteed);
  // A request of its own user, or terms of a pause, may pause it, and not end it.
  if (is_paused && way.ends() && !outranks(query.lease, lease) && !mutant(Mutant::anybody_yields))
    return because(IneligibleCode::ends_for_higher_tier);
  if (auto kept = keeps_its_word(state, rules, query, lease, now);
      kept && !(query.patient && kept->until != Time::never()))
    return kept;
  if (query.patient) return std::nullopt;
  const Standing standing = standing_of(state, lease.id);
  if (now < standing.ineligible_until) return because(IneligibleCode::cooldown, standing.ineligible_until);
  const bool at_once = by_request || query.lease.tier == Tier::critical;
  if (!at_once && now < standing.restored + resume_grace)
    return because(IneligibleCode::just_resumed, standing.restored + resume_grace);
  return std::nullopt;
}

std::string ineligible_text(const State& state, const Rules& rules, const PreemptionQuery& query,
                            const Ineligible& ineligible, Time now) {
  const Lease& lease = *find(state, ineligible.lease);
  const std::string its_state(to_string(lease.state));
  const auto requester = [&] { return requester_text(lease.preemption_request.value_or(PreemptionRequest{}), lease); };
  switch (ineligible.code) {
    case IneligibleCode::resuming: {
      const auto left = time_left(state, lease.id, now);
      return "it is resuming" + (left ? ", for about " + format_duration(*left) + " more" : std::string());
    }
    case IneligibleCode::inactive: return "it is " + its_state;
    case IneligibleCode::stuck:
      return "it is " + its_state + " and stuck: the driver has not returned for longer than it should take";
    case IneligibleCode::ending: return "its program is being ended already";
    case IneligibleCode::obstacle:
      return obstacle_text(state, lease, way_to_yield(state, rules, lease, query.lease.uid, now), now);
    case IneligibleCode::not_requesters: return "it is not the program of the user who requested memory";
    case IneligibleCode::tier:
      if (ranks_like(query.lease, lease)) return "it is of the same tier, and leaves at the end of its time slice only";
      return "it is of the tier " + std::string(to_string(lease.tier)) + ", which is not paused for the tier " +
             std::string(to_string(query.lease.tier));
    case IneligibleCode::guaranteed:
      return "it is within the quota of its tenant " +
             account(state, account(state, account_of(state, lease.id)).guarantor).name +
             ", and the waiting lease is not within the quota of its own";
    case IneligibleCode::ends_for_higher_tier:
      return "it cannot be paused, and is ended for a higher tier only: " + end_command(state, lease) + " ends it";
    case IneligibleCode::keeps_request:
      return requester() + " requested its memory before the waiting lease came, so the lease keeps it";
    case IneligibleCode::keeps_request_for:
      return requester() + " requested its memory, and the lease keeps it for " +
             format_duration(ineligible.until - now) + " more";
    case IneligibleCode::cooldown:
      return left_alone_text(standing_of(state, lease.id), *last_obstacle(state, lease.id), now);
    case IneligibleCode::just_resumed: break;
  }
  return "it resumed from a pause less than 2 s ago";
}

std::string no_victims_text(const State& state, const Rules& rules, const PreemptionQuery& query,
                            const NoVictims& why) {
  const std::string device = names_of_devices(state, {why.device});
  switch (why.code) {
    case NoVictims::Code::nobody_eligible: return "no lease on " + device + " may be paused now";
    case NoVictims::Code::too_little:
      return "the leases on " + device + " that may be paused hold only " + format_size(why.gain) + " of the " +
             format_size(why.lacks) + " that are lacking";
    case NoVictims::Code::free_sooner:
      return "the memory on " + device + " should be free by itself in " + format_duration(why.in) +
             ", and pauses take " + format_duration(why.takes);
    case NoVictims::Code::beyond_ledger: return too_many_text(state, rules, query.lease.uid, why.victims);
    case NoVictims::Code::unknown_devices:
      return "only " + std::to_string(why.known) + " of the devices that it may use are known and in service";
    case NoVictims::Code::none: break;
  }
  return {};
}

}  // namespace sublet::core
