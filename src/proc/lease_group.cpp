// SPDX-License-Identifier: Apache-2.0
#include "proc/lease_group.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::proc {
namespace {

// Turns a path in the file system into the path in the hierarchy that is mounted there.
std::string path_inside(const CgroupMount& mount, const std::string& path) {
  std::string rest = mount.path == "/" ? path : path.substr(mount.path.size());
  if (mount.root != "/") rest = mount.root + rest;
  return rest.empty() ? "/" : rest;
}

bool known_program(const Lineage& known, std::int32_t pid, LeaseId lease) {
  const auto at = std::lower_bound(known.members.begin(), known.members.end(), ProcessRef{pid, 0},
                                   [](const Member& member, ProcessRef wanted) { return member.process < wanted; });
  return at != known.members.end() && at->process.pid == pid && at->lease == lease && is_program(at->link);
}

}  // namespace

Result<LeaseGroup> find_lease_group(const Hierarchies& hierarchies, const std::string& path, LeaseId lease) {
  auto ref = check_cgroup(hierarchies, path);
  if (!ref) return ref.error();
  const CgroupMount* mount = hierarchies.v2();
  if (!ref->v2 || mount == nullptr) return bad_request(fmt::format("{} is not in the unified hierarchy", path));
  LeaseGroup group{std::move(*ref), {}, {}};
  group.inside = path_inside(*mount, group.ref.path);
  const std::string last = "/" + to_string(lease);
  if (!group.inside.ends_with(last)) return bad_request(fmt::format("{} is no group of {}", path, to_string(lease)));
  const std::string above = group.inside.substr(0, group.inside.size() - last.size());
  group.name = above.substr(above.rfind('/') + 1);
  if (group.name.empty()) return bad_request(fmt::format("{} is no group of {}", path, to_string(lease)));
  return group;
}

LeaseId lease_of_group(std::string_view inside, std::string_view name) {
  const std::string mark = fmt::format("/{}/lease-", name);
  const auto at = inside.rfind(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = inside.substr(at + mark.size());
  const auto lease = parse_lease_id(rest.substr(0, rest.find('/')));
  return lease ? *lease : LeaseId{};
}

std::vector<ProcessRef> newcomers(const ProcRoot& root, const LeaseGroup& group, LeaseId lease, const Lineage& known) {
  std::vector<ProcessRef> found;
  const auto listed = processes_in(group.ref);
  if (!listed) return found;
  for (const std::int32_t pid : listed->pids) {
    if (known_program(known, pid, lease)) continue;
    // The list has only pids, and a pid may have a new process by now. The process's own file is certain.
    const auto process = root.read_with(pid, "cgroup");
    if (!process || process->info.dead()) continue;
    const ProcessCgroups groups = parse_process_cgroups(process->text);
    const bool below = groups.v2 == group.inside || groups.v2.starts_with(group.inside + "/");
    if (below && lease_of_group(groups.v2, group.name) == lease) found.push_back(process->info.ref);
  }
  return found;
}

}  // namespace sublet::proc
