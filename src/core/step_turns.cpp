// SPDX-License-Identifier: Apache-2.0
// Turns among equals: when one comes, those who leave for it are asked as those are who make room for a higher tier
// (step_room.cpp). Who has had how much is counted for as long as there is somebody to share with.
#include "base/planted.h"
#include "core/stepper.h"
#include "core/turns.h"
#include "core/victims.h"

#include <algorithm>

namespace sublet::core {

void Stepper::wait_for_turn(const Lease& waiter, const std::vector<std::string>& barred) {
  if (devices_wanted(waiter) > 1) {
    const auto its = std::find_if(state_.turns_.begin(), state_.turns_.end(), [&](const auto& on) {
      return on.second.devices.size() > 1 && on.second.enters.front() == waiter.id;
    });
    if (its != state_.turns_.end() && its->second.at <= now_) take_turn(waiter, its->second);
    return;
  }
  for (const std::string& uuid : state_.where_might_yield(waiter.tier)) {
    const Device& device = state_.devices_.at(uuid);
    const auto known = state_.turns_.find(uuid);
    if (known != state_.turns_.end() && known->second.devices.size() > 1) continue;  // that one comes before
    auto turn = turn_on(waiter, device, barred);
    if (!turn || turn->leaves.empty() || comes_before(waiter, *turn)) continue;
    if (turn->at <= now_) {
      if (take_turn(waiter, *turn)) return;
      continue;
    }
    look_again_at(turn->at);
    if (known == state_.turns_.end() || turn->at < known->second.at) state_.turns_[uuid] = std::move(*turn);
  }
}

// Of those who want several devices the turn is found first, and no other begins there before it: on each of them the
// turns of others end at times of their own, and it would never be the turn of one who waits for all to end at once.
void Stepper::announce_turns_on_several() {
  for (const QueueKey& key : state_.askers_) {
    const Lease& waiter = *find(key.lease);
    if (devices_wanted(waiter) < 2 || !may_ask(state_, rules_, waiter)) continue;
    if (!state_.somebody_might_yield(waiter.tier)) continue;
    if (plan_room(state_, rules_, Asking{waiter, waiter.ordered, /*told=*/false}, now_).found) continue;
    const auto turn = turn_on_several(waiter, barred_from(waiter));
    if (!turn || comes_before(waiter, *turn)) continue;
    if (turn->at > now_) look_again_at(turn->at);
    for (const std::string& uuid : turn->devices) state_.turns_[uuid] = *turn;
  }
}

// On one device, whoever else may take turns there; none while they are not known, or barred.
std::optional<NextTurn> Stepper::turn_on(const Lease& waiter, const Device& device,
                                         const std::vector<std::string>& barred) {
  if (!waits_for(waiter, device) || !state_.known(device, rules_, now_)) return std::nullopt;
  if (std::find(barred.begin(), barred.end(), device.reading.uuid) != barred.end()) return std::nullopt;
  const Contenders contenders = contenders_on(state_, rules_, waiter, device, now_);
  if (!contenders.residents.empty()) join_contest(device, contenders);
  return turn_of(state_, rules_, waiter, device, contenders, now_);
}

// Where its turn comes first. It begins when that of the last of those who leave has ended.
std::optional<NextTurn> Stepper::turn_on_several(const Lease& waiter, const std::vector<std::string>& barred) {
  std::vector<NextTurn> turns;
  for (const Device* device : devices_for(state_, waiter)) {
    if (state_.turns_.contains(device->reading.uuid)) continue;
    if (auto turn = turn_on(waiter, *device, barred)) turns.push_back(std::move(*turn));
  }
  const std::size_t count = devices_wanted(waiter);
  if (turns.size() < count) return std::nullopt;
  std::stable_sort(turns.begin(), turns.end(), [](const NextTurn& a, const NextTurn& b) { return a.at < b.at; });
  NextTurn all{{}, {}, {waiter.id}, {}};
  for (std::size_t i = 0; i < count; ++i) {
    all.devices.push_back(turns[i].devices.front());
    if (i == 0 || !planted(Bug::turns_begin_with_the_first)) all.at = std::max(all.at, turns[i].at);
    for (const LeaseId id : turns[i].leaves)
      if (std::find(all.leaves.begin(), all.leaves.end(), id) == all.leaves.end()) all.leaves.push_back(id);
  }
  return all.leaves.empty() ? std::nullopt : std::optional(std::move(all));
}

// Whether the room is there by itself before that.
bool Stepper::comes_before(const Lease& waiter, const NextTurn& turn) const {
  return std::all_of(turn.devices.begin(), turn.devices.end(), [&](const std::string& uuid) {
    const auto by_itself = room_by_itself(state_, rules_, state_.devices_.at(uuid), state_.need(waiter, uuid), now_);
    return by_itself && *by_itself <= std::max(turn.at, now_);
  });
}

bool Stepper::take_turn(const Lease& waiter, const NextTurn& turn) {
  auto devices = turn.devices;
  if (planted(Bug::turns_of_one_device)) devices.resize(1);
  auto victims = as_victims(state_, rules_, turn.leaves, waiter.uid, devices, now_);
  return begin_making({waiter.id, waiter.tier, Ground::turn, true, std::move(devices), std::move(victims)});
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
