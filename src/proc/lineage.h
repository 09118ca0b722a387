// SPDX-License-Identifier: Apache-2.0
// Which processes belong to which lease, judged from the process table. Pure functions over values, any
// thread.
//
// Below a lease's main process, its keeper or an attached process everything belongs to the lease; where
// several leases are nested, the nearest one counts. Who once belonged stays, whatever becomes of its
// parents: the state handed from one pass to the next remembers. A process group or session that a member
// made, and a cgroup that was attached, bring in what was never seen below its lease (a link that may spare a
// process and never condemns one).
// The group that Sublet made for a lease's program is as good as descent: only what the program forked can be in it.
#pragma once

#include "base/ids.h"
#include "proc/process_table.h"

#include <span>
#include <string_view>
#include <vector>

namespace sublet::proc {

// How a process came to be a member. `owner` and `descendant` are the program itself: it may be signalled, and while
// any of it lives it has not ended. The others are booked to the lease (`attached`, `cgroup`, with all below them), or
// linked to it by a group that the program made.
enum class Link { owner, attached, descendant, cgroup, session, group };
std::string_view to_string(Link link);  // "owner", "attached", …
inline bool is_program(Link link) { return link == Link::owner || link == Link::descendant; }

struct LeaseRoots {
  LeaseId lease;
  ProcessRef main;                       // the owner's main process; none: not known (yet)
  ProcessRef keeper;                     // its parent; not itself a member, but what is below it is
  std::vector<ProcessRef> attached;      // named explicitly, by `attach`
  std::vector<std::int32_t> in_cgroups;  // pids now in the cgroups attached to it (cgroup.h reads them)
  std::vector<ProcessRef> in_own_group;  // proven to be in the group made for its program alone (lease_group.h)
};

struct Member {
  ProcessRef process;
  LeaseId lease;
  Link link = Link::owner;
  bool operator==(const Member&) const = default;
};

// A process group or session whose leader was a member. Its number cannot be anybody else's while one process
// is in it.
struct MemberGroup {
  std::int32_t id = 0;             // the leader's pid
  std::uint64_t leader_start = 0;  // start ticks of the leader, which may be gone
  std::uint32_t uid = 0;           // of the leader: somebody else's process is never linked by a group
  bool session = false;            // else a process group
  LeaseId lease;
  bool operator==(const MemberGroup&) const = default;
};

// The result of one pass, and what the next one remembers. It can be stored and read back within one boot.
struct Lineage {
  std::vector<Member> members;  // living ones, ordered by process, each once
  std::vector<MemberGroup> groups;

  const Member* find(ProcessRef process) const;  // null: without a lease
};

// `before` is the previous pass (empty at first). What it says of leases that are not in `roots` is
// forgotten. Cost: linear in `table`, with a sort of the members.
Lineage trace_lineage(std::span<const LeaseRoots> roots, const Lineage& before, std::span<const ProcessInfo> table);

}  // namespace sublet::proc
