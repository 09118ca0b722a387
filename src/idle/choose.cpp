// SPDX-License-Identifier: Apache-2.0
#include "idle/choose.h"

#include <algorithm>
#include <functional>

namespace sublet::idle {
namespace {

using Pointers = std::vector<const Candidate*>;

void order(std::vector<Candidate>& candidates) {
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.idle != b.idle ? a.idle > b.idle : a.lease < b.lease;
  });
}

Bytes part_of(const Candidate& candidate, const std::string& device) {
  const auto found = candidate.frees.find(device);
  return found == candidate.frees.end() ? Bytes{} : found->second;
}

bool touches(const Candidate& candidate, const std::set<std::string>& taken) {
  return std::ranges::any_of(candidate.frees, [&](const auto& part) { return taken.contains(part.first); });
}

// The candidates that free this much on the device together; none if all of them are not enough.
Pointers enough(const std::vector<Candidate>& candidates, const std::string& device, Bytes lacking) {
  Pointers chosen;
  Bytes sum;
  for (const Candidate& candidate : candidates) {
    if (sum >= lacking) break;
    if (part_of(candidate, device) <= Bytes{}) continue;
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
    if (Pointers chosen = enough(candidates, device, need - known->second); !chosen.empty())
      possible.push_back(std::move(chosen));
  }
  if (lacks <= 0 || static_cast<int>(possible.size()) < lacks) return {};
  std::ranges::stable_sort(possible, [](const Pointers& a, const Pointers& b) {
    return a.size() != b.size() ? a.size() < b.size() : a.front()->idle > b.front()->idle;
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

}  // namespace sublet::idle
