// SPDX-License-Identifier: Apache-2.0
// Host memory apart from parked bytes: its pressure, and the swap device with the control groups that keep programs
// from it. It outlives the daemon and the actor, like the kernel's.
#pragma once

#include "agenda.h"
#include "config.h"

#include "base/ids.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace sublet::sim {

class Ram {
 public:
  struct Group {
    bool limited = true;   // has a limit on swap space
    bool others = false;   // has processes of others, too
    bool stopped = false;  // nothing in it is written to the swap device
    bool noted = false;    // the actor stored its earlier limit
  };

  Ram(const Config& config, Agenda& agenda);

  // Part of the last 10 s for which everybody waited; unset: the kernel does not tell.
  std::optional<double> pressure() const { return pressure_; }
  void relax() { pressure_.reset(); }
  // The least pressure lately: a decision is stored before it is acted on, and may rest on an earlier report.
  double least_pressure() const;
  void stood_still(Duration d);  // a clock gap until now

  // The group of a program that is started: one of its own, the group of its user's session, or another.
  std::size_t place(std::uint32_t uid, Random& random);
  std::size_t groups() const { return groups_.size(); }
  Group& group(std::size_t number) { return groups_[number]; }
  const Group& group(std::size_t number) const { return groups_[number]; }
  // `by_somebody`: an actor may write to all groups.
  bool may_swap(std::size_t group, bool by_somebody) const;

 private:
  void change_pressure();

  const Config& config_;
  Agenda& agenda_;
  Random random_;
  std::optional<double> pressure_;
  std::vector<std::pair<std::int64_t, double>>
      until_;  // earlier values, the newest last, each with the time until which it held
  Duration stood_still_{};
  std::int64_t stood_until_ns_ = 0;
  std::vector<Group> groups_;
  std::map<std::uint32_t, std::size_t> sessions_;  // group of each user's session
};

}  // namespace sublet::sim
