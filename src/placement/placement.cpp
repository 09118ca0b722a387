// SPDX-License-Identifier: Apache-2.0
#include "placement/placement.h"

#include "placement/floor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace sublet::placement {
namespace {

// The worth of a device that is filled up, beside the gradient, in parts of a device. It decides between placements
// that fragment alike, so that no order of names has to. Measured on public traces: bench/placement_bench.cpp.
constexpr double consolidation = 0.05;

// The worth of free memory that keeps the processors which it needs, in the same parts. Measured in the same way: on
// the mix with most requests for several devices, 0.5 is worse for some orders of arrival.
constexpr double processors = 0.2;

constexpr std::array<std::pair<Policy, std::string_view>, 5> names{{{Policy::fragmentation, "fragmentation"},
                                                                    {Policy::best_fit, "best-fit"},
                                                                    {Policy::pack, "pack"},
                                                                    {Policy::spread, "spread"},
                                                                    {Policy::random, "random"}}};

// The devices that can hold a part of the request, the fullest first.
std::vector<std::size_t> fullest_first(const Machine& machine, const Request& request) {
  std::vector<std::size_t> devices;
  for (std::size_t i = 0; i < machine.free.size(); ++i)
    if (machine.free[i] >= request.each) devices.push_back(i);
  std::ranges::stable_sort(devices, {}, [&machine](std::size_t i) { return machine.free[i]; });
  return devices;
}

// The rest after the request, as a part of the largest machine: devices and processors in equal parts.
double left_over(const Machine& machine, const Request& request) {
  const Amount most = machine.most > 0 ? machine.most : machine.whole * std::ssize(machine.free);
  const Amount left = machine.all_free() - request.devices * request.each;
  const double devices = most > 0 ? static_cast<double>(left) / static_cast<double>(most) : 0;
  if (machine.most_cpu <= 0) return devices;
  return (devices + static_cast<double>(machine.cpu - request.cpu) / static_cast<double>(machine.most_cpu)) / 2;
}

// The processors that the mix needs for each unit of memory.
double processors_for_memory(const Mix& mix) {
  double cpu = 0, memory = 0;
  for (const auto& [request, weight] : mix) {
    cpu += weight * static_cast<double>(request.cpu);
    memory += weight * static_cast<double>(request.devices) * static_cast<double>(request.each);
  }
  return memory > 0 ? cpu / memory : 0;
}

// The free memory for which the machine has no processors left, if requests are as the mix is on average. 0 where
// machines have all processors that are asked for.
double stranded(Amount free, Amount cpu, double needed) {
  if (needed <= 0) return 0;
  return std::max(static_cast<double>(free) - static_cast<double>(std::max<Amount>(cpu, 0)) / needed, 0.0);
}

Machine after(const Machine& machine, const Request& request, std::span<const std::size_t> devices) {
  Machine left = machine;
  take(left, request, devices);
  return left;
}

// Free memory of one device that the mix cannot use.
double lost(Amount free, const Mix& mix) {
  double sum = 0;
  for (const auto& [request, weight] : mix)
    if (free < request.each) sum += weight * static_cast<double>(free);
  return sum;
}

// Devices that are in use before idle ones, and machines in use before idle ones, each the fuller the better.
double packed(const Machine& machine, std::span<const std::size_t> devices) {
  if (devices.empty()) return 0;
  const auto idle = [&machine](std::size_t i) { return machine.idle(i); };
  const auto opened = static_cast<double>(std::ranges::count_if(devices, idle));
  double free = 0;
  for (const std::size_t i : devices) free += static_cast<double>(machine.free[i]) / static_cast<double>(machine.whole);
  std::size_t all_idle = 0;
  for (std::size_t i = 0; i < machine.free.size(); ++i) all_idle += machine.idle(i);
  if (all_idle == machine.free.size()) return 1 / (2 + static_cast<double>(all_idle));  // less than any in use
  return opened > 0 ? 2 - opened / (1 + opened) : 4 - std::min(free / static_cast<double>(devices.size()), 1.0);
}

}  // namespace

Amount Machine::all_free() const { return std::accumulate(free.begin(), free.end(), Amount{}); }

std::string_view to_string(Policy policy) {
  return std::ranges::find(names, policy, &std::pair<Policy, std::string_view>::first)->second;
}

std::optional<Policy> parse_policy(std::string_view text) {
  const auto found = std::ranges::find(names, text, &std::pair<Policy, std::string_view>::second);
  return found == names.end() ? std::nullopt : std::optional(found->first);
}

Mix mix_of(std::span<const Request> seen, Amount whole, double floor) {
  std::map<std::tuple<int, Amount, Amount, Amount>, std::size_t> counts;
  for (const Request& its : seen) ++counts[{its.devices, its.each, its.cpu, its.memory}];
  Mix mix;
  for (const auto& [its, count] : counts) {
    const auto& [devices, each, cpu, memory] = its;
    mix.push_back({{devices, each, cpu, memory}, static_cast<double>(count) / static_cast<double>(seen.size())});
  }
  keep_floor(mix, whole, floor);
  return mix;
}

void keep_floor(Mix& mix, Amount whole, double floor) {
  double before = 0, sum = 0;
  for (const Expected& its : mix) before += its.weight;
  for (Expected& its : mix) {
    const bool large = its.request.devices > 1 || (its.request.devices == 1 && its.request.each >= whole);
    its.weight = large ? std::max(its.weight / before, floor) : its.weight / before;
    sum += its.weight;
  }
  for (Expected& its : mix) its.weight /= sum;
}

bool fits(const Machine& machine, const Request& request) {
  if (request.cpu > machine.cpu && request.cpu > 0) return false;
  if (request.memory > machine.memory && request.memory > 0) return false;
  if (request.devices == 0) return true;
  return std::ranges::count_if(machine.free, [&](Amount free) { return free >= request.each; }) >= request.devices;
}

double fragmented(const Machine& machine, const Mix& mix) {
  const Amount all = machine.all_free();
  double sum = 0;
  for (const auto& [request, weight] : mix) {
    Amount lost = all;
    if (request.devices > 0 && fits(machine, request)) {
      lost = 0;
      for (const Amount free : machine.free) lost += free < request.each ? free : 0;
    }
    sum += weight * static_cast<double>(lost);
  }
  return sum;
}

double loss(Amount free, Amount taken, const Mix& mix) {
  return lost(free - taken, mix) - lost(free, mix) + consolidation * static_cast<double>(free - taken);
}

double cost(Amount free, Amount taken, const Mix& mix) {
  if (mix.empty()) return 0;
  return static_cast<double>(taken) + lost(free - taken, mix) - lost(free, mix);
}

void take(Machine& machine, const Request& request, std::span<const std::size_t> devices) {
  for (const std::size_t i : devices) machine.free[i] -= request.each;
  machine.cpu -= request.cpu;
  machine.memory -= request.memory;
}

void give_back(Machine& machine, const Request& request, std::span<const std::size_t> devices) {
  for (const std::size_t i : devices) machine.free[i] += request.each;
  machine.cpu += request.cpu;
  machine.memory += request.memory;
}

namespace {

Choice choose_by_gradient(const Machine& machine, const Request& request, const Mix& mix,
                          const std::vector<std::size_t>& fitting) {
  const auto count = static_cast<std::size_t>(request.devices);
  const double before = fragmented(machine, mix), whole = static_cast<double>(machine.whole);
  Choice best{{}, -HUGE_VAL};
  const std::size_t last = count == 0 ? 0 : fitting.size() - count;  // it fits
  for (std::size_t first = 0; first <= last; ++first) {
    // Devices with the same free memory are alike.
    if (first > 0 && machine.free[fitting[first]] == machine.free[fitting[first - 1]]) continue;
    const std::span devices(fitting.begin() + static_cast<std::ptrdiff_t>(first), count);
    const double gradient = (before - fragmented(after(machine, request, devices), mix)) / whole;
    if (gradient > best.score) best = {{devices.begin(), devices.end()}, gradient};
  }
  const double needed = processors_for_memory(mix);
  const Amount free = machine.all_free();
  const double more = stranded(free - request.devices * request.each, machine.cpu - request.cpu, needed) -
                      stranded(free, machine.cpu, needed);
  best.score -= consolidation * left_over(machine, request) + processors * more / whole;
  return best;
}

}  // namespace

std::optional<Choice> choose(Policy policy, const Machine& machine, const Request& request, const Mix& mix) {
  if (!fits(machine, request)) return std::nullopt;
  std::vector<std::size_t> fitting = fullest_first(machine, request);
  if (policy == Policy::spread) std::ranges::reverse(fitting);
  Choice choice;
  if (policy == Policy::fragmentation) {
    choice = choose_by_gradient(machine, request, mix, fitting);
  } else {
    choice.devices.assign(fitting.begin(), fitting.begin() + request.devices);
    switch (policy) {
      case Policy::best_fit: choice.score = -left_over(machine, request); break;
      case Policy::spread: choice.score = left_over(machine, request); break;
      case Policy::pack: choice.score = packed(machine, choice.devices); break;
      case Policy::fragmentation:
      case Policy::random: break;
    }
  }
  std::ranges::sort(choice.devices);
  return choice;
}

}  // namespace sublet::placement
