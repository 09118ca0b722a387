// SPDX-License-Identifier: Apache-2.0
// What is checked of announced turns: each begins when it was said to, unless something changes until then. It is not
// put off for nothing, it does not begin sooner, and it is not forgotten.
#include "oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using namespace std::chrono_literals;

// Whoever waits was told of a moment; at that moment it is looked at.
void Oracle::check_turns_due(const core::State& state, Time now) {
  constexpr Duration late = 2ms;  // an alarm may ring a little after its time
  for (const auto& [uuid, turn] : state.turns()) {
    // One that is due on several waits for whoever has room made on one of them, or has begun.
    const auto being_made = [&state](const std::string& device) { return state.making_on(device) != nullptr; };
    if (turn.devices.size() > 1 && std::ranges::any_of(turn.devices, being_made)) continue;
    verdict_.expect(now <= turn.at + late, "turn-overdue", [&, &uuid = uuid, &turn = turn] {
      return fmt::format("the turn of {} on {} should have begun {} ago", to_string(turn.enters.front()), uuid,
                         format_duration(now - turn.at));
    });
  }
}

void Oracle::check_announced(const core::State& state, Time now) {
  if (!config_.quiet) return;
  std::map<LeaseId, Time> announced;
  for (const auto& [uuid, turn] : state.turns()) {
    const auto contest = contests_.find(uuid);
    if (contest == contests_.end() || !contest->second.fair) continue;
    for (const LeaseId id : turn.enters)
      if (state.making_for(id) == nullptr) announced[id] = turn.at;  // else its own has begun before
  }
  if (trace_ && announced != announced_)
    for (const auto& [id, at] : announced)
      fmt::print("    the turn of {} is to begin in {}\n", to_string(id), format_duration(at - now));
  const bool changed = std::exchange(announced_after_, changes_) != changes_;
  for (const auto& [id, at] : announced_)
    if (!changed) check_kept(state, id, at, announced, now);
  announced_ = std::move(announced);
}

void Oracle::check_kept(const core::State& state, LeaseId id, Time at, const std::map<LeaseId, Time>& announced,
                        Time now) {
  const auto says = [&](const char* what) {
    return [id, at, now, what] {
      return fmt::format("the turn of {} was to begin in {}, and nothing has changed since: {}", to_string(id),
                         format_duration(at - now), what);
    };
  };
  const auto lease = leases_.find(id);
  if (lease == leases_.end() || !waits(lease->second)) return;
  const bool fair = std::ranges::any_of(
      contests_, [id](const auto& on) { return on.second.fair && on.second.had.contains(id); });
  if (!fair) return;
  verdict_.expect(now >= at || state.making_for(id) == nullptr, "turn-too-early", says("it has begun"));
  if (const auto still = announced.find(id); still != announced.end()) {
    verdict_.expect(still->second == at, "turn-put-off", says("it is said to begin at another time"));
    return;
  }
  const bool begun = std::ranges::any_of(state.makings(), [](const core::Making& making) { return making.its_turn; });
  verdict_.expect(begun, "turn-forgotten", says("nothing is said of it any more, and none has begun"));
}

}  // namespace sublet::sim
