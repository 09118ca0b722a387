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
    join_contest(device, contenders);
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
    Making making{waiter.id, waiter.tier, Ground::turn, true, {uuid}, {}};
    for (const LeaseId id : turn->leaves)
      making.victims.push_back(as_victim(state_, rules_, *find(id), waiter.uid, device, now_));
    std::sort(making.victims.begin(), making.victims.end());
    if (begin_making(std::move(making))) return;
  }
}

// Who comes to the contest on a device starts as if it had had as much there as the one who had least.
void Stepper::join_contest(const Device& device, const Contenders& contenders) {
  auto& contest = state_.contests_[device.reading.uuid];
  std::optional<Duration> least;
  for (auto& [id, turns] : contest) {
    count_time(id, turns);
    least = std::min(least.value_or(turns.had), turns.had);
  }
  const State::Turns level{least.value_or(Duration{}), {}};
  for (const auto* group : {&contenders.residents, &contenders.waiters})
    for (const LeaseId id : *group) count_time(id, contest.try_emplace(id, level).first->second);
}

// How long it had its room, up to now.
void Stepper::count_time(LeaseId id, State::Turns& turns) {
  if (turns.since) turns.had += now_ - *turns.since;
  const Lease* lease = find(id);
  turns.since = lease != nullptr && lease->state == LeaseState::active ? std::optional(now_) : std::nullopt;
}

// Time with room counts only while somebody else of equal standing waits for it. What was had is remembered while that
// lasts, whoever is on the way out or in meanwhile.
void Stepper::leave_contests() {
  for (auto& [uuid, contest] : state_.contests_) {
    const auto device = state_.devices_.find(uuid);
    for (auto& [id, turns] : contest) count_time(id, turns);
    std::erase_if(contest, [&, &device = device](const auto& one) {
      return device == state_.devices_.end() || !contends(one.first, device->second);
    });
  }
  std::erase_if(state_.contests_, [](const auto& of) { return of.second.empty(); });
}

bool Stepper::contends(LeaseId id, const Device& device) const {
  const Lease* lease = state_.find(id);
  if (lease == nullptr || lease->ended()) return false;
  if (state_.queue_.contains(id)) return waits_for(*lease, device);
  if (!lease->reserves() || !device.leases.contains(id)) return false;
  if (lease->state != LeaseState::active) return true;
  return std::any_of(state_.askers_.begin(), state_.askers_.end(), [&](const QueueKey& key) {
    const Lease& other = *state_.find(key.lease);
    return other.id != id && other.tier == lease->tier && waits_for(other, device);
  });
}

// Whether any of those who take turns has its room: else they all only wait.
bool Stepper::contested() const {
  return std::any_of(state_.contests_.begin(), state_.contests_.end(), [this](const auto& of) {
    return std::any_of(of.second.begin(), of.second.end(), [this](const auto& one) {
      const Lease* lease = state_.find(one.first);
      return lease == nullptr || lease->reserves();
    });
  });
}

}  // namespace sublet::core
