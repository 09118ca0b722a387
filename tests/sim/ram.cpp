// SPDX-License-Identifier: Apache-2.0
#include "ram.h"

#include <algorithm>
#include <array>

namespace sublet::sim {

using namespace std::chrono_literals;

Ram::Ram(const Config& config, Agenda& agenda)
    : config_(config), agenda_(agenda), random_(config.seed ^ 0x4a3), groups_{{.limited = false, .others = true}} {
  if (config.pressed > 0) change_pressure();
}

void Ram::change_pressure() {
  constexpr std::array some{0.01, 0.05, 0.2, 0.5, 0.9};
  until_.emplace_back(agenda_.now_ns(), pressure_.value_or(0));
  pressure_.reset();
  if (random_.chance(config_.pressed)) pressure_ = some[random_.below(some.size())];
  else if (random_.chance(50)) pressure_ = 0;
  if (config_.pressed > 0) agenda_.in(random_.time(2s, 60s), [this] { change_pressure(); });
}

double Ram::least_pressure() const {
  // After a clock gap the daemon goes on with what it had decided before.
  const Duration since_stall{agenda_.now_ns() - stood_until_ns_};
  const Duration lately = 10s + (since_stall < 10s ? stood_still_ : Duration{});
  double least = pressure_.value_or(0);
  for (auto before = until_.rbegin(); before != until_.rend() && agenda_.now_ns() - before->first < lately.count();
       ++before)
    least = std::min(least, before->second);
  return least;
}

void Ram::stood_still(Duration d) {
  stood_still_ = d;
  stood_until_ns_ = agenda_.now_ns();
}

std::size_t Ram::place(std::uint32_t uid, Random& random) {
  if (!config_.swap || random.chance(5)) return 0;  // version 1 of control groups, say
  if (random.chance(30)) {
    const auto [session, newly] = sessions_.try_emplace(uid, groups_.size());
    if (newly) groups_.push_back({.others = random.chance(20)});
    return session->second;
  }
  groups_.push_back({.stopped = random.chance(10)});
  return groups_.size() - 1;
}

bool Ram::may_swap(std::size_t number, bool by_somebody) const {
  const Group& its = groups_[number];
  return config_.swap && !(its.limited && (its.stopped || (by_somebody && !its.others)));
}

}  // namespace sublet::sim
