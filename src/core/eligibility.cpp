// SPDX-License-Identifier: Apache-2.0
// Who is not asked to yield at this moment, and why not.
#include "base/mutants.h"
#include "core/format.h"
#include "core/slices.h"
#include "core/victims.h"

#include <algorithm>

namespace sublet::core {
namespace {

// What was made room for on somebody's word is not displaced by those who had to wait for it: no two displace each
// other back and forth. Everybody else leaves it the time that a turn would give it.
std::optional<Ineligible> keeps_its_word(const State& state, const Rules& rules, const PreemptionQuery& query,
                                         const Lease& lease, Time now) {
  if (!lease.preemption_request || query.by_request(lease)) return std::nullopt;
  const Lease& preemptor = query.lease;
  // A pause of it that failed is no new word: who came between that and its room may ask again.
  const Time given_at = lease.preemption_request->given_at.value_or(lease.granted_at.value_or(Time{}));
  const Time since = state.standing(lease.id).came_back;
  const std::string who = requester_text(*lease.preemption_request, lease);
  const bool reached = lease.preemption_request->any_user || lease.preemption_request->uid == preemptor.uid;
  if (reached && preemptor.id && preemptor.waits_since() <= given_at)
    return Ineligible{lease.id, query.told
                                    ? "it has its room, requested by " + who + ", and who waited then waits for it"
                                    : std::string()};
  const Time until = since + residency(state, rules, lease, lease.devices);
  if (preemptor.tier == Tier::critical || now >= until) return std::nullopt;
  return Ineligible{lease.id,
                    query.told ? "it has its room, requested by " + who + ", and keeps it for " +
                                     format_duration(until - now) + " more"
                               : std::string(),
                    until};
}

std::string left_alone_text(const Standing& standing, const LeftAlone& left_alone, Time now) {
  const std::string ago = format_duration(now - standing.tried_at) + " ago", why = ": " + left_alone.why;
  const std::string until = format_duration(standing.ineligible_until - now);
  switch (left_alone.ground) {
    case LeftAlone::Ground::failed: return "a pause of it failed " + ago + ", and it is left alone for " + until + why;
    case LeftAlone::Ground::undone:
      return "a pause of it was undone " + ago + ", and the next one is tried in " + until + why;
    case LeftAlone::Ground::refused: break;
  }
  return "it could not be asked " + ago + ", and that is looked at again in " + until + why;
}

}  // namespace

bool PreemptionQuery::reaches(const Lease& other) const {
  return by_request(other) || (by_rules && (other.tier < lease.tier || mutant(Mutant::anybody_yields)));
}

bool PreemptionQuery::may_be_on(const std::string& device) const {
  return on.empty() || std::find(on.begin(), on.end(), device) != on.end();
}

bool passed_over(const State& state, LeaseId id) { return state.stuck(id); }

std::optional<Ineligible> ineligible(const State& state, const Rules& rules, const PreemptionQuery& query,
                                     const Lease& lease, const WayToYield& way, Time now) {
  const auto because = [&](const auto& words, Time until = Time::never()) {
    return Ineligible{lease.id, query.told ? std::string(words()) : std::string(), until};
  };
  const bool unresponsive = does_not_go_on(state, rules, lease, now);  // nothing comes of waiting for it
  if (lease.state == LeaseState::resuming && !lease.parking->then_stop && !state.stuck(lease.id) && !unresponsive) {
    const auto left = query.told ? time_left(state, lease.id, now) : std::nullopt;
    if (!query.patient)
      return because([&] {
        return "it is resuming" + (left ? ", for about " + format_duration(*left) + " more" : std::string());
      });
  } else if (lease.state != LeaseState::active && !unresponsive) {
    return because([&] {
      return state.stuck(lease.id) ? "it is " + std::string(to_string(lease.state)) +
                                         " and stuck: the driver has not returned for longer than it should take"
                                   : "it is " + std::string(to_string(lease.state));
    });
  }
  if (lease.stop_requested) return because([] { return "its program is being ended already"; });
  if (way.kind == WayToYield::Kind::none)
    return because([&] { return obstacle_text(state, lease, way, now); }, way.until);
  const bool by_request = query.by_request(lease);
  if (!query.reaches(lease))
    return because([&]() -> std::string {
      if (!query.by_rules) return "it is not the program of the user on whose word room is made";
      return "it is of the tier " + std::string(to_string(lease.tier)) + ", which does not yield to " +
             std::string(to_string(query.lease.tier));
    });
  // Not even on its own user's word: that may have it paused.
  if (way.ends() && lease.tier >= query.lease.tier && !mutant(Mutant::anybody_yields))
    return because([&] {
      return "it cannot be paused, and is ended for a higher tier only: " + end_command(state, lease) + " ends it";
    });
  if (auto kept = keeps_its_word(state, rules, query, lease, now);
      kept && !(query.patient && kept->until != Time::never()))
    return kept;
  if (query.patient) return std::nullopt;
  const Standing standing = state.standing(lease.id);
  if (now < standing.ineligible_until)
    return because([&] { return left_alone_text(standing, state.left_alone(lease.id), now); },
                   standing.ineligible_until);
  const bool at_once = by_request || query.lease.tier == Tier::critical;
  if (!at_once && now < standing.restored + resume_grace)
    return because([] { return "it came back from a pause a moment ago"; }, standing.restored + resume_grace);
  return std::nullopt;
}

}  // namespace sublet::core
