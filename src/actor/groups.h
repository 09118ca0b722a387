// SPDX-License-Identifier: Apache-2.0
// Makes control groups for the programs of leases, and moves processes into them. The group "…/NAME/lease-7" lies below
// the group of the program. So a lease never takes a program out of another limit or filter. Belongs to one thread.
#pragma once

#include "base/ids.h"
#include "proc/lease_group.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::actor {

// A keeper that has a control group for itself and its program moves to this group below it. Then the group of the
// lease stands beside the keeper, and can have controllers of its own.
inline constexpr std::string_view keeper_group = "sublet-keeper";

// For a process in a group of its own that root made: moves it to `keeper_group` below, and lets groups beside it limit
// processor time. Does nothing in other groups. Failures only cost the limits.
void enter_keeper_group(const proc::ProcRoot& root);

class Groups {
 public:
  // `name`: NAME in the paths of this daemon's groups. Keeps a reference to `root`.
  Groups(const proc::ProcRoot& root, std::string name);

  // Finds the hierarchy, removes empty groups of earlier runs, and remembers groups that have processes.
  void open();
  // The mount point of the unified hierarchy; "": there is none.
  const std::string& hierarchy() const { return hierarchy_; }

  struct Place {
    std::optional<proc::LeaseGroup> group;  // the group of the lease; unset: failed
    std::string why_not;                    // a sentence, if `group` is unset
    std::string from;                       // path of the group that the process was moved from; "": not moved
  };
  // Makes the lease's group and moves the process of `pidfd`, which has that pid, into it. `alone`: fails if the group
  // has other processes, because it belongs to a lease of a lost store with the same number.
  Place place(LeaseId lease, std::int32_t pid, int pidfd, bool alone);
  // Moves another process of the same program, if it is still in the group that the program was moved from.
  void follow_into(const Place& place, std::int32_t pid, int pidfd) const;
  // Returns the group that an earlier run left for the lease.
  std::optional<proc::LeaseGroup> left_behind(LeaseId lease) const;
  // Removes the group if it is empty.
  void leave(const proc::LeaseGroup& group);

 private:
  Place make(LeaseId lease, const std::string& inside, std::int32_t pid, int pidfd, bool alone);
  Place found(const std::string& inside, LeaseId lease) const;
  std::string path_of(const std::string& inside) const;
  std::string place_for(const std::string& inside) const;
  int move(int to, std::int32_t pid, int pidfd) const;

  const proc::ProcRoot& root_;
  std::string name_;
  proc::Hierarchies hierarchies_;
  std::string hierarchy_;
  std::map<LeaseId, proc::LeaseGroup> left_behind_;
};

}  // namespace sublet::actor
