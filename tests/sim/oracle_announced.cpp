// SPDX-License-Identifier: Apache-2.0
// What is checked of announced turns: each begins when it was said to, unless something changes until then. It is not
// put off for nothing, it does not begin sooner, and it is not forgotten.
#include "oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using namespace std::chrono_literals;

namespace {

std::string not_kept(LeaseId id, Time at, Time now, std::string_view what) {
  return fmt::format("the turn of {} was to begin in {}, and nothing has changed since: {}", to_string(id),
                     format_duration(at - now), what);
}

}  // namespace

// Whoever waits was told of a moment; at that moment it is looked at.
void Oracle::check_slices_due(const core::State& state, Time now) {
  constexpr Duration late = 2ms;  // an alarm may ring a little after its time
  for (const auto& [uuid, slice] : state.slices()) {
    // One that is due on several waits for whoever has room made on one of them, or has begun.
    const auto being_made = [&state](const std::string& device) { return state.plan_on(device) != nullptr; };
    if (slice.devices.size() > 1 && std::ranges::any_of(slice.devices, being_made)) continue;
    verdict_.expect(now <= slice.at + late, "turn-overdue", [&, &uuid = uuid, &slice = slice] {
      return fmt::format("the turn of {} on {} should have begun {} ago", to_string(slice.enters.front()), uuid,
                         format_duration(now - slice.at));
    });
  }
}

void Oracle::check_announced(const core::State& state, Time now) {
  if (!config_.quiet) return;
  std::map<LeaseId, Time> announced;
  for (const auto& [uuid, slice] : state.slices()) {
    const auto contest = contests_.find(uuid);
    if (contest == contests_.end() || !contest->second.fair) continue;
    for (const LeaseId id : slice.enters)
      if (state.plan_for(id) == nullptr) announced[id] = slice.at;  // else its own has begun before
  }
  if (trace_ && announced != announced_)
    for (const auto& [id, at] : announced)
      fmt::print("    the turn of {} is to begin in {}\n", to_string(id), format_duration(at - now));
  const bool changed = std::exchange(announced_after_, changes_) != changes_;
  for (const auto& [id, at] : announced_)
    if (!changed) check_kept(state, id, at, announced, now);
  announced_ = std::move(announced);
}

// Room that was made for a turn is given to nobody else while one who was to come in by it waits, and fits.
void Oracle::check_entered(const core::State& state) {
  std::erase_if(entering_, [this](const auto& on) {
    const auto contest = contests_.find(on.first);
    return contest == contests_.end() || !contest->second.fair;
  });
  for (const auto& [uuid, contest] : contests_) {
    if (!contest.fair) continue;
    Entering& its = entering_[uuid];
    std::set<LeaseId> waiting;
    for (const auto& [id, had] : contest.had)
      if (waits(leases_.at(id))) waiting.insert(id);
    const auto enters = [&its](LeaseId id) { return std::ranges::find(its.enters, id) != its.enters.end(); };
    for (const auto& [id, had] : contest.had) {
      if (!its.begun || !its.waiting.contains(id) || waiting.contains(id) || enters(id)) continue;
      const Bytes free = state.effective_free(state.devices().at(uuid), config_.rules, last_now_);
      const Bytes there = free + leases_.at(id).vram;
      for (const LeaseId other : its.enters) {
        const bool late = waiting.contains(other) && state.need(leases_.at(other), uuid) <= there;
        verdict_.expect(!late, "turn-for-others", [&] {
          return fmt::format("{} was given room on {} that was made for the time slice of {}", to_string(id), uuid,
                             to_string(other));
        });
      }
    }
    its.waiting = std::move(waiting);
    const core::PreemptionPlan* plan = state.plan_on(uuid);
    its.begun = plan != nullptr && plan->by_slice && enters(plan->preemptor);
    if (its.begun) continue;
    const auto slice = state.slices().find(uuid);
    its.enters = slice == state.slices().end() ? std::vector<LeaseId>() : slice->second.enters;
  }
}

bool Oracle::takes_fair_slices(LeaseId id) const {
  const auto lease = leases_.find(id);
  return lease != leases_.end() && waits(lease->second) &&
         std::ranges::any_of(contests_, [id](const auto& on) { return on.second.fair && on.second.had.contains(id); });
}

// Somebody is asked to leave for it; that this is stored is the only thing that has changed. Most often it is all one
// step of the world: that the turn has begun, and that it is asked.
void Oracle::check_asked_for(LeaseId next, Time now) {
  const auto announced = announced_.find(next);
  const bool changed = changes_ != announced_after_ + 1;
  if (announced == announced_.end() || changed || !takes_fair_slices(next)) return;
  verdict_.expect(now >= announced->second, "turn-too-early",
                  [&] { return not_kept(next, announced->second, now, "it has begun"); });
}

void Oracle::check_kept(const core::State& state, LeaseId id, Time at, const std::map<LeaseId, Time>& announced,
                        Time now) {
  const auto says = [&](const char* what) { return [=] { return not_kept(id, at, now, what); }; };
  if (!takes_fair_slices(id)) return;
  verdict_.expect(now >= at || state.plan_for(id) == nullptr, "turn-too-early", says("it has begun"));
  if (const auto still = announced.find(id); still != announced.end()) {
    verdict_.expect(still->second == at, "turn-put-off", says("it is said to begin at another time"));
    return;
  }
  const bool begun = std::ranges::any_of(state.plans(), [](const core::PreemptionPlan& plan) { return plan.by_slice; });
  verdict_.expect(begun, "turn-forgotten", says("nothing is said of it any more, and none has begun"));
}

}  // namespace sublet::sim
