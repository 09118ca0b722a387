// SPDX-License-Identifier: Apache-2.0
#include "stacks/room.h"

#include <algorithm>
#include <set>

namespace sublet::stacks {
namespace {

using Names = std::vector<std::string>;

bool is_on(const Idle& stack, const std::string& device) { return std::ranges::count(stack.devices, device) > 0; }

// The stacks to bring down on one device, the oldest first.
std::optional<Names> choose_on(const std::string& device, Bytes missing, const std::vector<Idle>& idle) {
  for (const Idle& stack : idle)
    if (stack.leaves && is_on(stack, device)) missing -= stack.each;
  Names chosen;
  for (const Idle& stack : idle) {
    if (missing <= Bytes{}) break;
    if (stack.leaves || !is_on(stack, device)) continue;
    missing -= stack.each;
    chosen.push_back(stack.name);
  }
  return missing <= Bytes{} ? std::optional(chosen) : std::nullopt;
}

}  // namespace

std::optional<Names> choose_idle(const Need& need, const std::map<std::string, Bytes>& free, std::vector<Idle> idle) {
  std::ranges::sort(idle, {}, &Idle::since);
  std::vector<Names> by_device;
  for (const std::string& device : need.devices) {
    const auto left = free.find(device);
    if (left == free.end()) continue;
    if (auto chosen = choose_on(device, need.each - left->second, idle)) by_device.push_back(std::move(*chosen));
  }
  const auto count = static_cast<std::size_t>(need.count);
  if (by_device.size() < count) return std::nullopt;
  std::ranges::stable_sort(by_device, {}, &Names::size);
  std::set<std::string> all;
  for (std::size_t i = 0; i < count; ++i) all.insert(by_device[i].begin(), by_device[i].end());
  return Names(all.begin(), all.end());
}

}  // namespace sublet::stacks
