// SPDX-License-Identifier: Apache-2.0
// The control groups of leases: those that leases belong to, and those that are booked to leases.
#include "machine/local_program.h"

#include "base/path.h"

#include <algorithm>
#include <utility>

namespace sublet::machine {

Result<proc::CgroupRef> LocalPrograms::check_cgroup(const std::string& directory) const {
  const auto hierarchies = proc::find_hierarchies(*root_);
  if (!hierarchies) return hierarchies.error();
  return proc::check_cgroup(*hierarchies, directory);
}

Result<std::string> LocalPrograms::group_directory(const std::string& path) const {
  const auto hierarchies = proc::find_hierarchies(*root_);
  if (!hierarchies) return hierarchies.error();
  return proc::group_directory(*hierarchies, path);
}

std::vector<proc::LeaseRoots> LocalPrograms::roots() const {
  std::vector<proc::LeaseRoots> all;
  for (const auto& [id, program] : programs_) {
    proc::LeaseRoots roots{.lease = id,
                           .main = program->owner.process,
                           .keeper = program->owner.keeper,
                           .attached = program->attached,
                           .in_cgroups = {},
                           .in_own_group = {}};
    if (program->group) roots.in_own_group = proc::newcomers(*root_, *program->group, id, lineage_);
    if (!program->owner_group && program->group_inode != 0) {
      auto group = check_cgroup(program->group_path);
      if (group && group->inode == program->group_inode) program->owner_group = std::move(*group);
    }
    program->group_seen = program->owner_group && add_members(*program->owner_group, roots);
    for (const proc::CgroupRef& group : program->cgroups) add_members(group, roots);
    all.push_back(std::move(roots));
  }
  return all;
}

// True if the group has processes. A group that exists and cannot be read keeps the members that were seen before.
bool LocalPrograms::add_members(const proc::CgroupRef& group, proc::LeaseRoots& roots) const {
  const auto inside = proc::processes_in(group);
  if (inside) {
    roots.in_cgroups.insert(roots.in_cgroups.end(), inside->pids.begin(), inside->pids.end());
  } else if (inside.error().code != Code::NotFound) {
    for (const proc::Member& member : lineage_.members)
      if (member.lease == roots.lease && member.link == proc::Link::cgroup && lives(member.process))
        roots.in_cgroups.push_back(member.process.pid);
  }
  return inside && (!inside->pids.empty() || inside->outside > 0);
}

bool LocalPrograms::take_group_seen(LeaseId lease) {
  const auto found = programs_.find(lease);
  return found != programs_.end() && std::exchange(found->second->group_seen, false);
}

// A group of the same name may be another one now, so that its inode counts. If groups are nested, the innermost one
// counts. The program of an ended lease is known until its bytes have settled: the newest lease of a group counts.
LeaseId LocalPrograms::lease_of_group(std::int32_t pid) const {
  const auto has_group = [](const auto& entry) {
    return entry.second->owner_group || !entry.second->group_path.empty() || !entry.second->cgroups.empty();
  };
  if (std::ranges::none_of(programs_, has_group)) return {};
  const auto groups = proc::cgroups_of(*root_, pid);
  const proc::Hierarchies* hierarchies = hierarchies_.now(*root_);
  if (!groups || hierarchies == nullptr) return {};
  const auto around = proc::directories_of(*hierarchies, *groups);
  std::pair<std::size_t, LeaseId> best;
  const auto look = [&](LeaseId lease, const std::string& path, std::uint64_t inode) {
    const std::pair<std::size_t, LeaseId> here{path.size(), lease};
    const auto holds = [&path](const std::string& directory) { return is_inside(directory, path); };
    if (path.empty() || here <= best || std::ranges::none_of(around, holds)) return;
    const auto now = proc::check_cgroup(*hierarchies, path);
    if (now && (inode == 0 || now->inode == inode)) best = here;  // 0: this may be its first process
  };
  for (const auto& [id, program] : programs_) {
    look(id, program->owner_group ? program->owner_group->path : program->group_path, program->group_inode);
    for (const proc::CgroupRef& group : program->cgroups) look(id, group.path, group.inode);
  }
  return best.second;
}

}  // namespace sublet::machine
