// SPDX-License-Identifier: Apache-2.0
#include "proc/swap.h"

#include <fmt/format.h>

#include <unistd.h>
#include <fstream>

namespace sublet::proc {
namespace {

constexpr std::size_t most_looked_at = 4096;

// Returns "max", a number, or "" if the group has no such file.
std::string limit_of(const std::string& directory) {
  std::ifstream file(directory + "/memory.swap.max");
  std::string word;
  file >> word;
  return word;
}

}  // namespace

std::optional<SwapGroup> swap_group(const Hierarchies& hierarchies, const ProcessCgroups& groups) {
  const CgroupMount* v2 = hierarchies.v2();
  if (v2 == nullptr || groups.v2.empty() || groups.removed || groups.v2.find("/..") != std::string::npos) return {};
  std::string inside = groups.v2;
  // If only a part of the hierarchy is mounted, the groups above it are not visible.
  if (v2->root != "/") {
    if (inside != v2->root && !inside.starts_with(v2->root + "/")) return {};
    inside.erase(0, v2->root.size());
  }
  std::optional<SwapGroup> found;
  for (;;) {
    const std::string directory = v2->path + (inside == "/" ? "" : inside);
    const std::string limit = limit_of(directory);
    if (!limit.empty() && !found) found = SwapGroup{directory};
    if (found && limit == "0") found->stopped = true;
    if (inside.empty() || inside == "/") return found;
    inside.resize(inside.rfind('/'));
  }
}

Status belongs_to(const ProcRoot& root, const std::string& path, std::uint32_t uid) {
  const auto all = processes_below(path);
  if (!all) return all.error();
  if (all->outside > 0 || all->pids.size() > most_looked_at)
    return unavailable(fmt::format("{} holds processes of another pid namespace, or too many processes", path));
  for (const std::int32_t pid : all->pids) {
    const auto status = root.read_with(pid, "status");
    const auto uids = status ? parse_uids(status->text) : std::nullopt;
    if (uids && uids->real != uid && uids->real != 0)
      return denied(fmt::format("{} holds a process of another user, pid {}", path, pid));
  }
  return {};
}

bool may_stop_swap(const ProcRoot& root, const SwapGroup& group, const SwapStopper& by) {
  const std::string file = group.path + "/memory.swap.max";
  if (!by.root && ::access(file.c_str(), W_OK) != 0) return false;
  return belongs_to(root, group.path, by.uid).has_value();
}

}  // namespace sublet::proc
