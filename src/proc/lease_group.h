// SPDX-License-Identifier: Apache-2.0
// The control group of a lease's program, "…/NAME/lease-7", which src/actor makes. It lies below the group that the
// program was in, so that all limits and filters of that group still apply. Read only; any thread.
#pragma once

#include "proc/cgroup.h"
#include "proc/lineage.h"

#include <string>
#include <string_view>
#include <vector>

namespace sublet::proc {

struct LeaseGroup {
  CgroupRef ref;
  std::string inside;  // its path in the hierarchy, as in /proc/PID/cgroup
  std::string name;    // NAME: distinguishes the groups of several daemons
};

// Returns the group at `path`. BadRequest unless `path` is such a group of that lease, in the unified hierarchy.
Result<LeaseGroup> find_lease_group(const Hierarchies& hierarchies, const std::string& path, LeaseId lease);

// Returns the lease of the innermost group with that NAME in the path `inside`, which is from /proc/PID/cgroup. None:
// the process is in no such group.
LeaseId lease_of_group(std::string_view inside, std::string_view name);

// Returns the processes that are in the group now and that `known` does not list for this lease's program. Each
// ProcessRef was read from a process that is certainly in the group. A group that cannot be read counts as empty, so
// that no process is harmed by mistake.
std::vector<ProcessRef> newcomers(const ProcRoot& root, const LeaseGroup& group, LeaseId lease, const Lineage& known);

}  // namespace sublet::proc
