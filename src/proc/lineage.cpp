// SPDX-License-Identifier: Apache-2.0
#include "proc/lineage.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace sublet::proc {
namespace {

struct Belonging {
  LeaseId lease;  // none: without a lease
  Link link = Link::owner;
};

// One pass over a process table. A process is named by its index in the table.
class Trace {
 public:
  Trace(std::span<const LeaseRoots> roots, const Lineage& before, std::span<const ProcessInfo> table)
      : roots_(roots), table_(table), results_(table.size()), marks_(table.size(), Mark::untouched) {
    by_pid_.reserve(table.size());
    for (std::size_t i = 0; i < table.size(); ++i) by_pid_[table[i].ref.pid] = i;
    index_roots();
    index_memory(before);
  }

  Lineage run() {
    for (std::size_t i = 0; i < table_.size(); ++i) resolve(i);
    for (std::size_t i = 0; i < table_.size(); ++i) join_by_own_group(i);
    collect_groups();
    for (std::size_t i = 0; i < table_.size(); ++i) join_by_group(i);
    // Below processes that a group brought in there may be processes without any other link.
    for (auto& mark : marks_) mark = Mark::untouched;
    for (std::size_t i = 0; i < table_.size(); ++i) resolve(i);
    return result();
  }

 private:
  enum class Mark : char { untouched, open, done };

  void index_roots() {
    for (const LeaseRoots& root : roots_) {
      leases_.insert(root.lease);
      // Attaching the main process of another lease does not take it from that lease.
      for (const ProcessRef process : root.attached) {
        if (process) explicit_.try_emplace(process, Belonging{root.lease, Link::attached});
      }
      if (root.keeper) keepers_.try_emplace(root.keeper, root.lease);
      for (const ProcessRef process : root.in_own_group) own_groups_.try_emplace(process, root.lease);
      for (const std::int32_t pid : root.in_cgroups) cgroups_.try_emplace(pid, root.lease);
    }
    for (const LeaseRoots& root : roots_) {
      if (root.main) explicit_[root.main] = {root.lease, Link::owner};
    }
  }

  void index_memory(const Lineage& before) {
    for (const Member& member : before.members) {
      if (leases_.contains(member.lease)) memory_.try_emplace(member.process, Belonging{member.lease, member.link});
    }
    for (const MemberGroup& group : before.groups) {
      if (leases_.contains(group.lease)) groups_.try_emplace(key(group.id, group.session), group);
    }
  }

  // Returns the index of the parent, or -1. A parent younger than its child took over the pid of the true parent
  // between the two reads.
  std::ptrdiff_t parent_of(std::size_t i) const {
    const auto found = by_pid_.find(table_[i].ppid);
    if (found == by_pid_.end() || found->second == i) return -1;
    return table_[found->second].ref.start_ticks <= table_[i].ref.start_ticks ? std::ptrdiff_t(found->second) : -1;
  }

  // Decides without the parents, if possible. False: the parents decide.
  bool settle_alone(std::size_t i, std::ptrdiff_t parent) {
    const ProcessInfo& process = table_[i];
    if (results_[i].lease) return true;
    if (process.dead()) return true;
    if (const auto named = explicit_.find(process.ref); named != explicit_.end()) {
      results_[i] = named->second;
      return true;
    }
    if (const auto known = memory_.find(process.ref); known != memory_.end()) {
      results_[i] = known->second;
      return true;
    }
    // A parent outside the cgroup means that the cgroup was entered here. This link is nearer than any link further up.
    const auto group = cgroups_.find(process.ref.pid);
    if (group != cgroups_.end()) {
      const auto above = parent < 0 ? cgroups_.end() : cgroups_.find(table_[std::size_t(parent)].ref.pid);
      if (above == cgroups_.end() || above->second != group->second) {
        results_[i] = {group->second, Link::cgroup};
        return true;
      }
    }
    if (parent < 0) return true;
    const auto keeper = keepers_.find(table_[std::size_t(parent)].ref);
    if (keeper == keepers_.end()) return false;
    results_[i] = {keeper->second, Link::descendant};
    return true;
  }

  void resolve(std::size_t start) {
    path_.clear();
    std::size_t at = start;
    Belonging found;
    for (;;) {
      if (marks_[at] == Mark::done) {
        found = results_[at];
        break;
      }
      const std::ptrdiff_t parent = parent_of(at);
      if (marks_[at] == Mark::open) break;  // a cycle, which only a table torn by reused pids can show
      marks_[at] = Mark::open;
      path_.push_back(at);
      if (settle_alone(at, parent)) {
        found = results_[at];
        break;
      }
      at = std::size_t(parent);
    }
    for (const std::size_t i : path_) {
      marks_[i] = Mark::done;
      if (!results_[i].lease && found.lease && !table_[i].dead()) results_[i] = {found.lease, inherited(found.link)};
    }
  }

  // Only a descendant of the owner is the program. The descendants of other members have the same link as their
  // ancestor.
  static Link inherited(Link link) { return link == Link::owner ? Link::descendant : link; }

  static std::uint64_t key(std::int32_t id, bool session) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(id)) << 1) | (session ? 1u : 0u);
  }

  // Adds the groups that members lead to the remembered ones. Removes groups that are empty or whose number was reused.
  void collect_groups() {
    for (std::size_t i = 0; i < table_.size(); ++i) {
      const ProcessInfo& leader = table_[i];
      for (const bool session : {false, true}) {
        const auto known = groups_.find(key(leader.ref.pid, session));
        if (known != groups_.end() && known->second.leader_start != leader.ref.start_ticks) groups_.erase(known);
        if ((session ? leader.session : leader.pgrp) != leader.ref.pid) continue;
        if (const LeaseId lease = group_owner(i, session)) {
          groups_[key(leader.ref.pid, session)] = {leader.ref.pid, leader.ref.start_ticks, leader.uid, session, lease};
        }
      }
    }
    std::unordered_set<std::uint64_t> peopled;
    for (const ProcessInfo& process : table_) {
      peopled.insert(key(process.session, true));
      peopled.insert(key(process.pgrp, false));
    }
    std::erase_if(groups_, [&](const auto& entry) { return !peopled.contains(entry.first); });
  }

  // Returns the lease of the group or session that this process leads. A keeper's session holds only its program, but
  // its process group may be a whole pipeline of a shell. A process that was linked by a group says nothing about the
  // groups that it leads.
  LeaseId group_owner(std::size_t i, bool session) const {
    if (const auto keeper = keepers_.find(table_[i].ref); keeper != keepers_.end()) {
      return session ? keeper->second : LeaseId{};
    }
    const Belonging& leader = results_[i];
    return leader.link == Link::group || leader.link == Link::session ? LeaseId{} : leader.lease;
  }

  // Adds a process of the program whose ancestors were gone before a pass saw them. Descent from another lease's
  // program is nearer, because leases and their groups may be nested.
  void join_by_own_group(std::size_t i) {
    if (own_groups_.empty() || table_[i].dead() || is_keeper(table_[i].ref)) return;
    const auto found = own_groups_.find(table_[i].ref);
    if (found == own_groups_.end()) return;
    Belonging& now = results_[i];
    const bool weak = now.lease == found->second && now.link != Link::owner;
    if (!now.lease || weak) now = {found->second, Link::descendant};
  }

  void join_by_group(std::size_t i) {
    const ProcessInfo& process = table_[i];
    if (results_[i].lease || process.dead() || is_keeper(process.ref)) return;
    for (const bool session : {true, false}) {
      const auto found = groups_.find(key(session ? process.session : process.pgrp, session));
      if (found == groups_.end()) continue;
      const MemberGroup& group = found->second;
      if (group.uid != process.uid || process.ref.start_ticks < group.leader_start) continue;
      results_[i] = {group.lease, session ? Link::session : Link::group};
      return;
    }
  }

  bool is_keeper(ProcessRef process) const { return keepers_.contains(process); }

  Lineage result() const {
    Lineage out;
    for (std::size_t i = 0; i < table_.size(); ++i) {
      if (results_[i].lease && !table_[i].dead()) {
        out.members.push_back({table_[i].ref, results_[i].lease, results_[i].link});
      }
    }
    std::sort(out.members.begin(), out.members.end(),
              [](const Member& a, const Member& b) { return a.process < b.process; });
    const auto same = [](const Member& a, const Member& b) { return a.process == b.process; };
    out.members.erase(std::unique(out.members.begin(), out.members.end(), same), out.members.end());
    for (const auto& [number, group] : groups_) out.groups.push_back(group);
    std::sort(out.groups.begin(), out.groups.end(),
              [](const MemberGroup& a, const MemberGroup& b) { return key(a.id, a.session) < key(b.id, b.session); });
    return out;
  }

  std::span<const LeaseRoots> roots_;
  std::span<const ProcessInfo> table_;
  std::vector<Belonging> results_;  // by index in the table, like marks_
  std::vector<Mark> marks_;
  std::vector<std::size_t> path_;
  std::unordered_map<std::int32_t, std::size_t> by_pid_;
  std::unordered_set<LeaseId> leases_;
  std::unordered_map<ProcessRef, Belonging> explicit_;
  std::unordered_map<ProcessRef, LeaseId> keepers_;
  std::unordered_map<std::int32_t, LeaseId> cgroups_;
  std::unordered_map<ProcessRef, LeaseId> own_groups_;
  std::unordered_map<ProcessRef, Belonging> memory_;
  std::unordered_map<std::uint64_t, MemberGroup> groups_;
};

}  // namespace

std::string_view to_string(Link link) {
  switch (link) {
    case Link::owner: return "owner";
    case Link::attached: return "attached";
    case Link::descendant: return "descendant";
    case Link::cgroup: return "cgroup";
    case Link::session: return "session";
    case Link::group: return "group";
  }
  return "descendant";
}

const Member* Lineage::find(ProcessRef process) const {
  const auto at = std::lower_bound(members.begin(), members.end(), process,
                                   [](const Member& member, ProcessRef wanted) { return member.process < wanted; });
  return at != members.end() && at->process == process ? &*at : nullptr;
}

Lineage trace_lineage(std::span<const LeaseRoots> roots, const Lineage& before, std::span<const ProcessInfo> table) {
  return Trace(roots, before, table).run();
}

}  // namespace sublet::proc
