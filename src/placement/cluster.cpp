// SPDX-License-Identifier: Apache-2.0
#include "placement/cluster.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace sublet::placement {

Cluster::Cluster(std::vector<Machine> machines, Policy policy, Mix mix, std::uint64_t seed)
    : Cluster(
          std::move(machines),
          [policy, mix](const Machine& machine, const Request& request) {
            return choose(policy, machine, request, mix);
          },
          mix, seed, policy == Policy::random) {}

Cluster::Cluster(std::vector<Machine> machines, Chooser chooser, Mix mix, std::uint64_t seed, bool random)
    : machines_(std::move(machines)),
      mix_(std::move(mix)),
      chooser_(std::move(chooser)),
      is_random_(random),
      random_(seed) {
  Amount most = 0, most_cpu = 0;
  for (const Machine& machine : machines_) {
    most = std::max(most, machine.all_free());
    most_cpu = std::max(most_cpu, machine.cpu);
    all_ += machine.all_free();
  }
  for (Machine& machine : machines_) machine.most = most, machine.most_cpu = most_cpu;
}

std::optional<Place> Cluster::place(const Request& request) {
  const auto machine = best(scores_for(request));
  if (!machine) return std::nullopt;
  Place place{*machine, chooser_(machines_[*machine], request)->devices};
  take(machines_[*machine], request, place.devices);
  held_ += request.devices * request.each;
  changes_.push_back(*machine);
  return place;
}

void Cluster::give_back(const Place& place, const Request& request) {
  placement::give_back(machines_[place.machine], request, place.devices);
  held_ -= request.devices * request.each;
  changes_.push_back(place.machine);
}

double Cluster::fragmented() const {
  double sum = 0;
  for (const Machine& machine : machines_) sum += placement::fragmented(machine, mix_);
  return sum;
}

Cluster::Scores& Cluster::scores_for(const Request& request) {
  Scores& scores = scores_[{request.devices, request.each, request.cpu, request.memory}];
  const auto look_at = [&](std::size_t machine) {
    const auto choice = chooser_(machines_[machine], request);
    scores.of[machine] = choice ? choice->score : std::numeric_limits<double>::quiet_NaN();
  };
  if (scores.of.empty() || changes_.size() - scores.seen > machines_.size()) {
    scores.of.resize(machines_.size());
    for (std::size_t i = 0; i < machines_.size(); ++i) look_at(i);
  } else {
    for (std::size_t i = scores.seen; i < changes_.size(); ++i) look_at(changes_[i]);
  }
  scores.seen = changes_.size();
  return scores;
}

std::optional<std::size_t> Cluster::best(const Scores& scores) {
  std::optional<std::size_t> best;
  std::uint64_t alike = 0;
  for (std::size_t i = 0; i < scores.of.size(); ++i) {
    if (std::isnan(scores.of[i])) continue;
    const bool better = !best || scores.of[i] > scores.of[*best];
    // A random policy takes each of the machines that fit with the same probability.
    const bool drawn = is_random_ && random_() % ++alike == 0;
    if (is_random_ ? drawn : better) best = i;
  }
  return best;
}

}  // namespace sublet::placement
