// SPDX-License-Identifier: Apache-2.0
#include "simulate/fill.h"

#include "core/step.h"
#include "simulate/devices.h"

#include <algorithm>
#include <cassert>
#include <random>

namespace sublet::simulate {
namespace {

using placement::Amount;

constexpr std::size_t told_each = 256;  // jobs

placement::Request request_of(const Job& job) { return {job.devices, job.vram.count, job.cpu, job.memory}; }

// The same draw on every machine: std::shuffle and the standard's distributions are not.
std::uint64_t below(std::mt19937_64& random, std::uint64_t limit) { return random() % limit; }

std::vector<std::size_t> arrivals(const std::vector<Job>& jobs, double asked, std::mt19937_64& random) {
  std::vector<std::size_t> order(jobs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[below(random, i)]);
  double sum = 0;
  const auto size = [&jobs](std::size_t job) {
    return static_cast<double>(jobs[job].devices) * static_cast<double>(jobs[job].vram.count);
  };
  std::size_t needed = 0;
  for (; needed < order.size() && sum < asked; ++needed) sum += size(order[needed]);
  order.resize(needed);
  const bool any = std::ranges::any_of(jobs, [](const Job& job) { return job.devices > 0 && job.vram > Bytes{}; });
  while (any && sum < asked) sum += size(order.emplace_back(below(random, jobs.size())));
  return order;
}

// One machine after the other, and their devices: the shipped decisions have to agree with each place.
class Grants {
 public:
  explicit Grants(const std::vector<Node>& nodes) {
    rules_.headroom = {};
    rules_.max_age = std::chrono::hours(24 * 3650);
    rules_.automatic = false;
    std::vector<Bytes> sizes;
    for (const Node& node : nodes) {
      first_.push_back(sizes.size());
      sizes.insert(sizes.end(), static_cast<std::size_t>(node.devices), node.each);
    }
    const core::Snapshot snapshot{.began = now_, .devices = readings_of(sizes)};
    (void)core::step(state_, rules_, snapshot, now_);
  }

  bool grant(const Job& job, const placement::Place& place) {
    core::Lease lease;
    lease.consumer = "job";
    lease.vram = job.vram;
    lease.device_count = job.devices;
    lease.owner.kind = core::OwnerKind::token;
    for (const std::size_t device : place.devices)
      lease.wanted_devices.push_back(uuid_of(first_[place.machine] + device));
    const core::Plan plan = core::step(state_, rules_, core::Submit{std::move(lease)}, now_);
    return plan.outcome && core::find(state_, *plan.outcome)->state == core::LeaseState::active;
  }

 private:
  core::State state_;
  core::Rules rules_;
  Time now_{1'600'000'000'000'000'000};
  std::vector<std::size_t> first_;  // device of each machine
};

}  // namespace

Filled fill(const std::vector<Job>& jobs, const std::vector<Node>& nodes, const Filling& how) {
  std::mt19937_64 random(how.seed);
  std::vector<placement::Machine> machines;
  for (const Node& node : nodes)
    machines.push_back({.free = std::vector<Amount>(static_cast<std::size_t>(node.devices), node.each.count),
                        .whole = node.each.count,
                        .cpu = node.cpu,
                        .memory = node.memory});
  std::vector<placement::Request> seen;
  for (const Job& job : jobs) seen.push_back(request_of(job)), seen.back().memory = 0;
  Amount whole = 0;
  for (const Node& node : nodes) whole = std::max(whole, node.each.count);
  const placement::Mix mix = placement::mix_of(seen, whole);
  placement::Cluster cluster = how.chooser ? placement::Cluster(std::move(machines), how.chooser, mix, how.seed)
                                           : placement::Cluster(std::move(machines), how.policy, mix, how.seed);
  Grants grants(nodes);
  const double all = static_cast<double>(cluster.all());
  Filled filled;
  double asked = 0;
  const auto note = [&] {
    while (asked / all * 100 >= static_cast<double>(filled.allocated.size())) {
      filled.allocated.push_back(100 * static_cast<double>(cluster.held()) / all);
      filled.fragmented.push_back(100 * cluster.fragmented() / all);
    }
  };
  note();
  std::size_t count = 0;
  for (const std::size_t at : arrivals(jobs, how.fill * all, random)) {
    if (++count % told_each == 0 && how.goes_on && !how.goes_on(asked / all / how.fill)) {
      filled.partial = true;
      break;
    }
    const Job& job = jobs[at];
    const auto place = cluster.place(request_of(job));
    const bool granted = place && (job.devices == 0 || grants.grant(job, *place));
    assert(granted == place.has_value() && "the decisions grant what a placement found");
    granted ? ++filled.placed : ++filled.refused;
    asked += static_cast<double>(job.devices) * static_cast<double>(job.vram.count);
    note();
  }
  return filled;
}

}  // namespace sublet::simulate
