// SPDX-License-Identifier: Apache-2.0
// Turns among equals: when one comes, those who leave for it are asked as those are who make room for a higher tier
// (step_room.cpp). Who has had how much is counted for as long as there is somebody to share with.
#include "core/stepper.h"
#include "core/turns.h"
#include "core/victims.h"

#include <algorithm>

namespace sublet::core {

void Stepper::wait_for_turn(const Lease& waiter, const std::vector<std::string>& barred) {
  if (waiter.device_count != 1) return;
  for (const std::string& uuid : state_.where_might_yield(waiter.tier)) {
    const Device& device = state_.devices_.at(uuid);
    if (!waits_for(waiter, device) || !state_.known(device, rules_, now_)) continue;
    if (std::find(barred.begin(), barred.end(), uuid) != barred.end()) continue;
    const Contenders contenders = contenders_on(state_, rules_, waiter, device, now_);
    if (contenders.residents.empty()) continue;
    join_contest(contenders);
    auto turn = turn_of(state_, rules_, waiter, device, contenders, now_);
    if (!turn) continue;
    const auto by_itself = room_by_itself(state_, rules_, device, state_.need(waiter, uuid), now_);
    if (by_itself && *by_itself <= std::max(turn->at, now_)) continue;
    if (turn->at > now_) {
      look_again_at(turn->at);
      const auto known = state_.turns_.find(uuid);
      if (known == state_.turns_.end() || turn->at < known->second.at) state_.turns_[uuid] = std::move(*turn);
      continue;
    }
    Making making{waiter.id, waiter.tier, Ground::turn, {uuid}, {}};
    for (const LeaseId id : turn->leaves) making.victims.push_back(as_victim(state_, rules_, *find(id), device, now_));
    std::sort(making.victims.begin(), making.victims.end());
    if (begin_making(std::move(making))) return;
  }
}

// Who comes to the contest starts as if it had had as much as the one who had least.
void Stepper::join_contest(const Contenders& contenders) {
  std::vector<LeaseId> all = contenders.residents;
  all.insert(all.end(), contenders.waiters.begin(), contenders.waiters.end());
  std::optional<Duration> least;
  for (const LeaseId id : all) {
    if (!state_.contending_.contains(id)) continue;
    const Duration had = count_turn(id);
    least = std::min(least.value_or(had), had);
  }
  for (const LeaseId id : all) {
    if (!state_.contending_.insert(id).second) continue;
    state_.sides_.at(id).turn = {least.value_or(Duration{}), {}};
    count_turn(id);
  }
}

// How long it had its room, up to now.
Duration Stepper::count_turn(LeaseId id) {
  State::Turns& turn = state_.sides_.at(id).turn;
  if (turn.since) turn.had += now_ - *turn.since;
  turn.since = find(id)->state == LeaseState::active ? std::optional(now_) : std::nullopt;
  return turn.had;
}

// Time with room counts only while somebody else of equal standing waits for it. What was had is remembered while that
// lasts, whoever is on the way out or in meanwhile.
void Stepper::count_turns() {
  std::erase_if(state_.contending_, [this](LeaseId id) {
    if (find(id) == nullptr) return true;
    count_turn(id);
    const bool goes_on = contends(*find(id));
    if (!goes_on) state_.sides_.at(id).turn = {};
    return !goes_on;
  });
}

bool Stepper::contends(const Lease& lease) const {
  if (lease.ended()) return false;
  if (lease.state == LeaseState::pausing || lease.state == LeaseState::resuming) return true;
  if (lease.state != LeaseState::active) return lease.state == LeaseState::offered || state_.queue_.contains(lease.id);
  return std::any_of(state_.askers_.begin(), state_.askers_.end(), [&](const QueueKey& key) {
    const Lease& other = *state_.find(key.lease);
    return other.id != lease.id && other.tier == lease.tier &&
           std::any_of(lease.devices.begin(), lease.devices.end(),
                       [&](const std::string& uuid) { return waits_for(other, state_.devices_.at(uuid)); });
  });
}

}  // namespace sublet::core
