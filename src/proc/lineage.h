// SPDX-License-Identifier: Apache-2.0
// Decides which processes belong to which lease, from the process table. Pure functions over values, any thread.
//
// All processes below a lease's main process, its keeper or an attached process belong to the lease. If leases are
// nested, the nearest lease counts. A member stays a member when its parents end: each pass hands a state to the next
// pass. A process group or session that a member made, and an attached cgroup, add processes that were never seen below
// the lease. Such a link may protect a process, but never condemns one. The group that Sublet made for a lease's
// program counts like descent: only the program's children can be in it.
#pragma once

#include "base/ids.h"
#include "proc/process_table.h"

#include <span>
#include <string_view>
#include <vector>

namespace sublet::proc {

// How a process became a member. `owner` and `descendant` are the program itself: the program may be signalled, and it
// has not ended while one of them lives. Processes with `attached` or `cgroup`, and those below them, are booked to the
// lease. `session` and `group` link a process by a group that the program made.
enum class Link { owner, attached, descendant, cgroup, session, group };
std::string_view to_string(Link link);  // "owner", "attached", …
inline bool is_program(Link link) { return link == Link::owner || link == Link::descendant; }
// Booked processes are parked where the lease has no program of its own, and get no signal.
inline bool may_be_parked(Link link) { return is_program(link) || link == Link::attached || link == Link::cgroup; }

struct LeaseRoots {
  LeaseId lease;
  ProcessRef main;                       // the owner's main process; none: not known (yet)
  ProcessRef keeper;                     // the parent of `main`; not a member, but the processes below it are
  std::vector<ProcessRef> attached;      // the processes that `attach` named
  std::vector<std::int32_t> in_cgroups;  // pids in the cgroups attached to the lease (read by cgroup.h)
  std::vector<ProcessRef> in_own_group;  // processes proven to be in the program's own group (lease_group.h)
};

struct Member {
  ProcessRef process;
  LeaseId lease;
  Link link = Link::owner;
  bool operator==(const Member&) const = default;
};

// A process group or session whose leader was a member. The kernel does not reuse its number while a process is in it.
struct MemberGroup {
  std::int32_t id = 0;             // the leader's pid
  std::uint64_t leader_start = 0;  // start ticks of the leader, which may have ended
  std::uint32_t uid = 0;           // uid of the leader; a group never links processes of another user
  bool session = false;            // false: a process group
  LeaseId lease;
  bool operator==(const MemberGroup&) const = default;
};

// The result of a pass, which is the input of the next pass. It can be stored and read back within a boot.
struct Lineage {
  std::vector<Member> members;  // living members, ordered by process, each once
  std::vector<MemberGroup> groups;

  const Member* find(ProcessRef process) const;  // null: the process has no lease
};

// Runs a pass. `before` is the result of the previous pass (empty at first). Members of leases that are not in `roots`
// are forgotten. Cost: linear in `table`, plus a sort of the members.
Lineage trace_lineage(std::span<const LeaseRoots> roots, const Lineage& before, std::span<const ProcessInfo> table);

}  // namespace sublet::proc
