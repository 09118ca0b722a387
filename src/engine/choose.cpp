// SPDX-License-Identifier: Apache-2.0
#include "engine/choose.h"

#include <algorithm>
#include <functional>

namespace sublet::engine {
namespace {

using Pointers = std::vector<const Candidate*>;

void order(std::vector<Candidate>& candidates) {
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.length != b.length ? a.length > b.length : a.lease < b.lease;
  });
}

Bytes part_of(const Candidate& candidate, const std::string& device) {
  const auto found = candidate.frees.find(device);
  return found == candidate.frees.end() ? Bytes{} : found->second;
}

bool touches(const Candidate& candidate, const std::set<std::string>& taken) {
  return std::ranges::any_of(candidate.frees, [&](const auto& part) { return taken.contains(part.first); });
}

// The candidates that free this much on the device together for a waiter of this tier; none if all of them are not
// enough.
Pointers enough(const std::vector<Candidate>& candidates, core::Tier tier, const std::string& device, Bytes lacking) {
  Pointers chosen;
  Bytes sum;
  for (const Candidate& candidate : candidates) {
    if (sum >= lacking) break;
    if (candidate.least > tier || part_of(candidate, device) <= Bytes{}) continue;
    chosen.push_back(&candidate);
    sum += part_of(candidate, device);
  }
  if (sum < lacking) return {};
  std::erase_if(chosen, [&](const Candidate* candidate) {
    if (sum - part_of(*candidate, device) < lacking) return false;
    sum = sum - part_of(*candidate, device);
    return true;
  });
  return chosen;
}

// The candidates to pause for the waiter, on as many devices as it lacks; none if it would not get its memory.
Pointers wanted_for(const Waiter& waiter, const std::vector<Candidate>& candidates,
                    const std::map<std::string, Bytes>& free) {
  int lacks = waiter.devices;
  std::vector<Pointers> possible;
  for (const auto& [device, need] : waiter.needs) {
    const auto known = free.find(device);
    if (known == free.end()) continue;
    if (need <= known->second) {
      --lacks;
      continue;
    }
    if (Pointers chosen = enough(candidates, waiter.tier, device, need - known->second); !chosen.empty())
      possible.push_back(std::move(chosen));
  }
  if (lacks <= 0 || static_cast<int>(possible.size()) < lacks) return {};
  std::ranges::stable_sort(possible, [](const Pointers& a, const Pointers& b) {
    return a.size() != b.size() ? a.size() < b.size() : a.front()->length > b.front()->length;
  });
  Pointers all;
  for (int i = 0; i < lacks; ++i)
    for (const Candidate* candidate : possible[static_cast<std::size_t>(i)])
      if (std::ranges::find(all, candidate) == all.end()) all.push_back(candidate);
  return all;
}

void take(const Candidate& candidate, LeaseId waiter, std::set<std::string>& taken, std::vector<Choice>& choices) {
  for (const auto& [device, bytes] : candidate.frees) taken.insert(device);
  choices.push_back({candidate.lease, waiter});
}

}  // namespace

std::vector<Choice> choose(std::vector<Candidate> candidates, const std::vector<Waiter>& waiters,
                           const std::map<std::string, Bytes>& free, std::set<std::string> taken) {
  order(candidates);
  std::vector<Choice> choices;
  for (const Waiter& waiter : waiters) {
    for (const Candidate* candidate : wanted_for(waiter, candidates, free))
      if (!touches(*candidate, taken)) take(*candidate, waiter.lease, taken, choices);
  }
  return choices;
}

std::vector<Choice> choose_always(std::vector<Candidate> candidates, std::set<std::string> taken) {
  order(candidates);
  std::vector<Choice> choices;
  for (const Candidate& candidate : candidates)
    if (!touches(candidate, taken)) take(candidate, {}, taken, choices);
  return choices;
}

std::map<std::string, Bytes> freed_by(const core::State& state, const core::Lease& lease) {
  std::map<std::string, Bytes> freed;
  for (const std::string& device : lease.devices) freed[device] = core::charged_on(state, lease, device);
  return freed;
}

std::vector<Waiter> waiters(const core::State& state, std::size_t most) {
  std::vector<Waiter> all;
  for (const LeaseId id : state.queue.in_order(most)) {
    const core::Lease& lease = *core::find(state, id);
    Waiter waiter{id, lease.device_count, {}, lease.tier};
    if (lease.waits_in_place()) {
      waiter.devices = static_cast<int>(lease.devices.size());
      for (const std::string& device : lease.devices) waiter.needs[device] = core::need_on(state, lease, device);
    } else {
      for (const auto& [uuid, device] : state.devices.by_uuid)
        if (core::may_use(lease, uuid)) waiter.needs[uuid] = core::need_on(state, lease, uuid);
    }
    all.push_back(std::move(waiter));
  }
  return all;
}

std::map<std::string, Bytes> free_memory(const core::State& state, const core::Rules& rules, Time now) {
  std::map<std::string, Bytes> free;
  for (const auto& [uuid, device] : state.devices.by_uuid)
    if (core::may_grant_on(state, device, rules, now)) free[uuid] = core::free_on(state, device, rules, now);
  return free;
}

std::set<std::string> moving_devices(const core::State& state) {
  std::set<std::string> moving;
  for (const auto& [uuid, device] : state.devices.by_uuid)
    if (device.pausing > 0 || core::plan_on(state, uuid) != nullptr) moving.insert(uuid);
  for (const LeaseId id : state.pauses.away) {
    const core::Lease* lease = core::find(state, id);
    if (lease != nullptr && lease->state == core::LeaseState::resuming)
      moving.insert(lease->devices.begin(), lease->devices.end());
  }
  return moving;
}

}  // namespace sublet::engine
