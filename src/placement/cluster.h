// SPDX-License-Identifier: Apache-2.0
// Places requests on many machines by a policy. A plain value with a seed: the same requests in the same order get the
// same places.
#pragma once

#include "placement/placement.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

namespace sublet::placement {

// A request that has its place.
struct Place {
  std::size_t machine = 0;
  std::vector<std::size_t> devices;
};

// Chooses devices of one machine; nothing if the request does not fit.
using Chooser = std::function<std::optional<Choice>(const Machine&, const Request&)>;

class Cluster {
 public:
  // Equal choices go to the machine that was given first.
  Cluster(std::vector<Machine> machines, Policy policy, Mix mix, std::uint64_t seed);

  // The same with other scores, for comparisons. `random`: scores do not count.
  Cluster(std::vector<Machine> machines, Chooser chooser, Mix mix, std::uint64_t seed, bool random = false);

  // Takes the memory of the best place; nothing if the request fits nowhere.
  std::optional<Place> place(const Request& request);
  void give_back(const Place& place, const Request& request);

  const std::vector<Machine>& machines() const { return machines_; }
  Amount all() const { return all_; }  // of all devices
  Amount held() const { return held_; }
  double fragmented() const;  // by the mix

 private:
  // The scores of one kind of request: a score is computed again when its machine has changed.
  struct Scores {
    std::vector<double> of;  // by machine; NaN: the request does not fit
    std::size_t seen = 0;    // of `changes_`
  };
  using Kind = std::tuple<int, Amount, Amount, Amount>;

  Scores& scores_for(const Request& request);
  std::optional<std::size_t> best(const Scores& scores);

  std::vector<Machine> machines_;
  Mix mix_;
  Chooser chooser_;
  bool is_random_;
  std::mt19937_64 random_;
  Amount all_ = 0, held_ = 0;
  std::vector<std::size_t> changes_;  // machines, in the order of their changes
  std::map<Kind, Scores> scores_;
};

}  // namespace sublet::placement
