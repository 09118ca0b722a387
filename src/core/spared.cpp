// SPDX-License-Identifier: Apache-2.0
// Who is not asked to yield at this moment, and why not.
#include "base/planted.h"
#include "core/turns.h"
#include "core/victims.h"
#include "core/words.h"

#include <algorithm>

namespace sublet::core {
namespace {

// What was made room for on somebody's word is not displaced by those who had to wait for it: no two displace each
// other back and forth. Everybody else leaves it the time that a turn would give it.
std::optional<Spared> keeps_its_word(const State& state, const Rules& rules, const Asking& asking, const Lease& lease,
                                     Time now) {
  if (!lease.ordered || asking.by_order(lease)) return std::nullopt;
  const Lease& asker = asking.lease;
  // A pause of it that failed is no new word: who came between that and its room may ask again.
  const Time given_at = lease.ordered->given_at.value_or(lease.granted_at.value_or(Time{}));
  const Time since = state.standing(lease.id).came_back;
  const std::string who = whose_word(*lease.ordered, lease);
  const bool reached = lease.ordered->anybodys || lease.ordered->uid == asker.uid;
  if (reached && asker.id && asker.waits_since() <= given_at)
    return Spared{lease.id, asking.told ? "it has its room on the word of " + who + ", and who waited then waits for it"
                                        : std::string()};
  const Time until = since + residency(state, rules, lease, lease.devices);
  if (asker.tier == Tier::critical || now >= until) return std::nullopt;
  return Spared{lease.id,
                asking.told ? "it has its room on the word of " + who + ", and keeps it for " +
                                  format_duration(until - now) + " more"
                            : std::string(),
                until};
}

std::string left_alone_text(const Standing& standing, const LeftAlone& left_alone, Time now) {
  const std::string ago = format_duration(now - standing.tried_at) + " ago", why = ": " + left_alone.why;
  const std::string until = format_duration(standing.spared_until - now);
  switch (left_alone.ground) {
    case LeftAlone::Ground::failed: return "a pause of it failed " + ago + ", and it is left alone for " + until + why;
    case LeftAlone::Ground::undone:
      return "a pause of it was undone " + ago + ", and the next one is tried in " + until + why;
    case LeftAlone::Ground::refused: break;
  }
  return "it could not be asked " + ago + ", and that is looked at again in " + until + why;
}

}  // namespace

bool Asking::reaches(const Lease& other) const {
  return by_order(other) || (by_rules && (other.tier < lease.tier || planted(Bug::anybody_yields)));
}

bool Asking::may_be_on(const std::string& device) const {
  return on.empty() || std::find(on.begin(), on.end(), device) != on.end();
}

bool passed_over(const State& state, LeaseId id) { return state.stuck(id) && !planted(Bug::stuck_ones_hold_up); }

std::optional<Spared> spared(const State& state, const Rules& rules, const Asking& asking, const Lease& lease,
                             const WayToYield& way, Time now) {
  const auto because = [&](const auto& words, Time until = Time::never()) {
    return Spared{lease.id, asking.told ? std::string(words()) : std::string(), until};
  };
  const bool deaf = does_not_go_on(state, rules, lease, now);  // nothing comes of waiting for it
  if (lease.state == LeaseState::resuming && !lease.parking->then_stop && !state.stuck(lease.id) && !deaf) {
    const auto left = asking.told ? time_left(state, lease.id, now) : std::nullopt;
    if (!asking.patient)
      return because([&] {
        return "it is resuming" + (left ? ", for about " + format_duration(*left) + " more" : std::string());
      });
  } else if (lease.state != LeaseState::active && !deaf) {
    return because([&] {
      return state.stuck(lease.id) ? "it is " + std::string(to_string(lease.state)) +
                                         " and stuck: the driver has not returned for longer than it should take"
                                   : "it is " + std::string(to_string(lease.state));
    });
  }
  if (lease.stop_requested) return because([] { return "its program is being ended already"; });
  if (way.kind == WayToYield::Kind::none)
    return because([&] { return obstacle_text(state, lease, way, now); }, way.until);
  const bool by_order = asking.by_order(lease);
  if (!asking.reaches(lease))
    return because([&]() -> std::string {
      if (!asking.by_rules) return "it is not the program of the user on whose word room is made";
      return "it is of the tier " + std::string(to_string(lease.tier)) + ", which does not yield to " +
             std::string(to_string(asking.lease.tier));
    });
  // Not even on its own user's word: that may have it paused.
  if (way.ends() && lease.tier >= asking.lease.tier && !planted(Bug::anybody_yields))
    return because([&] {
      return "it cannot be paused, and is ended for a higher tier only: " + end_command(state, lease) + " ends it";
    });
  if (auto kept = keeps_its_word(state, rules, asking, lease, now);
      kept && !(asking.patient && kept->until != Time::never()))
    return kept;
  if (asking.patient) return std::nullopt;
  const Standing standing = state.standing(lease.id);
  if (now < standing.spared_until)
    return because([&] { return left_alone_text(standing, state.left_alone(lease.id), now); }, standing.spared_until);
  const bool at_once = by_order || asking.lease.tier == Tier::critical;
  if (!at_once && now < standing.restored + breath && !planted(Bug::back_and_asked_at_once))
    return because([] { return "it came back from a pause a moment ago"; }, standing.restored + breath);
  return std::nullopt;
}

}  // namespace sublet::core
