// SPDX-License-Identifier: Apache-2.0
// Makes control groups for the programs of leases and puts processes into them. A group is made below the one that the
// program is in, "…/NAME/lease-7": so a lease never takes a program out of a limit or a filter of somebody else's.
// Belongs to one thread.
#pragma once

#include "base/ids.h"
#include "proc/lease_group.h"

#include <map>
#include <optional>
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
  // Removes the group if it is empty.
  void leave(const proc::LeaseGroup& group);

 private:
  Place make(LeaseId lease, const std::string& inside, std::int32_t pid, int pidfd, bool alone);
  Place found(const std::string& inside, LeaseId lease) const;
  std::string path_of(const std::string& inside) const;
  int move(int to, std::int32_t pid, int pidfd) const;
  void sweep(const std::string& path, int depth);
  void sweep_groups(const std::string& path);

  const proc::ProcRoot& root_;
  std::string name_;
  proc::Hierarchies hierarchies_;
  std::string hierarchy_;
  std::map<LeaseId, proc::LeaseGroup> left_behind_;
  int swept_ = 0;
};

}  // namespace sublet::actor
