// SPDX-License-Identifier: Apache-2.0
// Host memory beside what is parked there: how short it is for everybody, and the swap device with the control groups
// by which programs are kept from it. As the kernel has it: it outlives the daemon, and whoever writes to groups.
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
    bool others = false;   // somebody else's processes are in it, too
    bool stopped = false;  // nothing in it is written to the device
    bool noted = false;    // by whoever serves the daemon, and what it was before is written down
  };

  Ram(const Config& config, Agenda& agenda);

  // Part of the last 10 s for which everybody waited; unset: the kernel does not tell.
  std::optional<double> pressure() const { return pressure_; }
  void relax() { pressure_.reset(); }
  // The least that it was lately: whoever acts on what was told may have had to store first what he decided.
  double least_pressure() const;
  void stood_still(Duration d);  // the daemon did, until now

  // The group of a program that is started: one of its own, the group of its user's session, or another.
  std::size_t place(std::uint32_t uid, Random& random);
  std::size_t groups() const { return groups_.size(); }
  Group& group(std::size_t number) { return groups_[number]; }
  const Group& group(std::size_t number) const { return groups_[number]; }
  // `by_somebody`: there is somebody who may write to all groups.
  bool may_swap(std::size_t group, bool by_somebody) const;

 private:
  void change_pressure();

  const Config& config_;
  Agenda& agenda_;
  Random random_;
  std::optional<double> pressure_;
  std::vector<std::pair<std::int64_t, double>> until_;  // before: the newest last, each until it changed
  Duration stood_still_{};
  std::int64_t stood_until_ns_ = 0;
  std::vector<Group> groups_;
  std::map<std::uint32_t, std::size_t> sessions_;  // of each user
};

}  // namespace sublet::sim
