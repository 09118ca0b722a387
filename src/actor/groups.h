// SPDX-License-Identifier: Apache-2.0
// Makes control groups for the programs of leases and puts processes into them. A group is made below the one that the
// program is in, "…/NAME/lease-7": so a lease never takes a program out of a limit or a filter of somebody else's.
// Only this writes to the hierarchy. Belongs to one thread.
#pragma once

#include "base/ids.h"
#include "proc/lease_group.h"

#include <map>
#include <optional>
#include <set>
#include <string>

namespace sublet::actor {

class Groups {
 public:
  // `name`: of all groups of one daemon. Refers to `root`.
  Groups(const proc::ProcRoot& root, std::string name);

  // Finds the hierarchy, takes away what earlier runs left empty, and remembers what they left peopled.
  void open();
  // Where the unified hierarchy is mounted; "": none is.
  const std::string& hierarchy() const { return hierarchy_; }

  struct Place {
    std::optional<proc::LeaseGroup> group;  // the lease's own
    std::string why_not;                    // else a sentence
    std::string from;                       // the group that it was taken from, in the hierarchy; "": not moved
  };
  // Puts the process behind `pidfd`, which has that pid, into the lease's group, which it makes. `alone`: a group of
  // that name that others are in is not the lease's (its number was given before, by a store that is lost).
  Place place(LeaseId lease, std::int32_t pid, int pidfd, bool alone);
  // Another process of the same program, if it is still where the program was taken from.
  void follow_into(const Place& place, std::int32_t pid, int pidfd) const;
  // What an earlier run left for the lease.
  std::optional<proc::LeaseGroup> left_behind(LeaseId lease) const;
  // Keeps the innermost group of the process that has a limit on swap space from swap, for this lease. What the limit
  // was is written down at the group, for whoever comes after us. Refused with a sentence where somebody else is in the
  // group than that user and root, whom it would concern.
  std::string keep_from_swap(LeaseId lease, std::int32_t pid, std::uint32_t uid);
  // Gives the groups that were kept for this lease, and are not for another, their limits back.
  void let_swap(LeaseId lease);
  // Removes the group if it is empty.
  void leave(const proc::LeaseGroup& group);

 private:
  Place make(LeaseId lease, const std::string& inside, std::int32_t pid, int pidfd, bool alone);
  Place found(const std::string& inside, LeaseId lease) const;
  std::string path_of(const std::string& inside) const;
  void sweep(const std::string& path, int depth);
  void sweep_groups(const std::string& path);

  const proc::ProcRoot& root_;
  std::string name_;
  proc::Hierarchies hierarchies_;
  std::string hierarchy_;
  std::string mounted_;  // which group stands at hierarchy_: "/" unless a part of it was mounted
  std::map<LeaseId, proc::LeaseGroup> left_behind_;
  struct Kept {
    std::set<LeaseId> by;
    std::string before;  // its limit
  };
  std::map<std::string, Kept> kept_;  // from swap, by path
  int swept_ = 0;
};

}  // namespace sublet::actor
