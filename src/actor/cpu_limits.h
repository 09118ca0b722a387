// SPDX-License-Identifier: Apache-2.0
// Limits the processor time of programs, by groups that hold nothing but the program: the group of its lease in the
// unified hierarchy, or a group of the same name where the controller is mounted as version 1. Belongs to one thread.
#pragma once

#include "base/ids.h"
#include "proc/cgroup.h"
#include "proc/lease_group.h"
#include "proc/process_table.h"

#include <map>
#include <optional>
#include <span>
#include <string>

namespace sublet::actor {

class CpuLimits {
 public:
  // `name`: NAME in the paths of this daemon's groups. Keeps a reference to `root`.
  CpuLimits(const proc::ProcRoot& root, std::string name);

  // Finds the hierarchies, and lifts the limits of an earlier actor.
  void open();
  // Limits the processes of the lease's program to `percent` of one processor, 1 to 100. `group`: its group in the
  // unified hierarchy, if it has one. `members`: its processes, of which the first one is in the place that counts.
  // Returns "" or a sentence about the failure.
  std::string limit(LeaseId lease, const std::optional<proc::LeaseGroup>& group, std::span<const ProcessRef> members,
                    int percent);
  // Lifts the limit. Returns "" or a sentence about the failure. A lease without a limit: "".
  std::string lift(LeaseId lease);

 private:
  std::string limit_v2(const std::string& path, int percent) const;
  std::string limit_v1(LeaseId lease, std::span<const ProcessRef> members, int percent, std::string& path) const;
  std::string v1_home(std::int32_t pid) const;
  void gather(int group, std::span<const ProcessRef> members, const std::string& home) const;

  const proc::ProcRoot& root_;
  std::string name_;
  proc::Hierarchies hierarchies_;
  std::map<LeaseId, std::string> limited_;  // paths of the groups with a limit
};

}  // namespace sublet::actor
