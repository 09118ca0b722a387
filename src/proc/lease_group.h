// SPDX-License-Identifier: Apache-2.0
// The control group that is made for one lease's program (src/actor makes it): "…/NAME/lease-7", below the group that
// the program was in, so that every limit and filter of that one goes on holding. Read only; any thread.
#pragma once

#include "proc/cgroup.h"
#include "proc/lineage.h"

#include <string>
#include <string_view>
#include <vector>

namespace sublet::proc {

struct LeaseGroup {
  CgroupRef ref;
  std::string inside;  // its path in the hierarchy, as /proc/PID/cgroup tells it
  std::string name;    // NAME: of one daemon's groups, which are told from another's by it
};

// BadRequest unless `path` is such a group of that lease, in the unified hierarchy.
Result<LeaseGroup> find_lease_group(const Hierarchies& hierarchies, const std::string& path, LeaseId lease);

// The lease whose group of that name a process is in that /proc/PID/cgroup says to be at `inside`: the innermost one.
// None: in no such group.
LeaseId lease_of_group(std::string_view inside, std::string_view name);

// Who is in the group now and does not stand in `known` as a process of this lease's program. Each is named by what was
// read from the one process that is certainly in the group. What cannot be read counts as empty: it spares.
std::vector<ProcessRef> newcomers(const ProcRoot& root, const LeaseGroup& group, LeaseId lease, const Lineage& known);

}  // namespace sublet::proc
