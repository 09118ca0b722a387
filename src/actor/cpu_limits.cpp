// SPDX-License-Identifier: Apache-2.0
#include "actor/cpu_limits.h"

#include "actor/group_files.h"
#include "proc/pidfd.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <utility>

namespace sublet::actor {
namespace {

constexpr int period_us = 100'000;
constexpr const char* v2_file = "cpu.max";
constexpr const char* v1_file = "cpu.cfs_quota_us";

std::string failure(const char* what, const std::string& path) {
  return fmt::format("cannot {} {}: {}", what, path, std::strerror(errno));
}

// Lifts the limit of an open group of either version. Without a limit file there is no limit.
bool lift_group(int group) {
  const bool v2 = ::faccessat(group, v2_file, F_OK, 0) == 0, v1 = ::faccessat(group, v1_file, F_OK, 0) == 0;
  return (!v2 || write_word(group, v2_file, fmt::format("max {}", period_us))) &&
         (!v1 || write_word(group, v1_file, "-1"));
}

}  // namespace

CpuLimits::CpuLimits(const proc::ProcRoot& root, std::string name) : root_(root), name_(std::move(name)) {}

void CpuLimits::open() {
  auto found = proc::find_hierarchies(root_);
  hierarchies_ = found ? std::move(*found) : proc::Hierarchies{};
  limited_.clear();
  for (const proc::CgroupMount* mount : {hierarchies_.v2(), hierarchies_.v1("cpu")}) {
    if (mount == nullptr) continue;
    each_lease_group(mount->path, name_, [mount](LeaseId, const std::string& path, int group) {
      (void)lift_group(group);
      if (!mount->v2) (void)::rmdir(path.c_str());  // refused while processes are there
    });
  }
}

std::string CpuLimits::limit(LeaseId lease, const std::optional<proc::LeaseGroup>& group,
                             std::span<const ProcessRef> members, int percent) {
  std::string path = group ? group->ref.path : std::string();
  std::string why = group ? limit_v2(path, percent) : "the program has no control group of its own";
  if (!why.empty() && hierarchies_.v1("cpu") != nullptr) why = limit_v1(lease, members, percent, path);
  if (why.empty()) limited_[lease] = path;
  return why;
}

// The controller must be on in the group above, which holds groups of leases only.
std::string CpuLimits::limit_v2(const std::string& path, int percent) const {
  const Fd above = open_group(AT_FDCWD, path.substr(0, path.rfind('/')).c_str());
  if (above) (void)write_word(above.get(), "cgroup.subtree_control", "+cpu");
  const Fd group = open_group(AT_FDCWD, path.c_str());
  if (group && write_word(group.get(), v2_file, fmt::format("{} {}", percent * period_us / 100, period_us))) return {};
  if (errno == ENOENT) return "no control group there can limit processor time";
  return failure("limit the processor time of", path);
}

std::string CpuLimits::v1_home(std::int32_t pid) const {
  const proc::CgroupMount* mount = hierarchies_.v1("cpu");
  const auto groups = proc::cgroups_of(root_, pid);
  if (mount == nullptr || !groups) return {};
  const auto inside = groups->v1.find("cpu");
  return inside == groups->v1.end() ? std::string() : proc::directory_of(*mount, inside->second);
}

std::string CpuLimits::limit_v1(LeaseId lease, std::span<const ProcessRef> members, int percent,
                                std::string& path) const {
  std::string home = members.empty() ? std::string() : v1_home(members.front().pid);
  if (home.empty()) return "the program's control group is not visible here";
  const std::string last = fmt::format("/{}/{}", name_, to_string(lease));
  if (home.ends_with(last)) home.resize(home.size() - last.size());
  const Fd present = open_group(AT_FDCWD, home.empty() ? "/" : home.c_str());
  bool was_there = false;
  const Fd base = present ? make_group(present.get(), name_, was_there) : Fd();
  const Fd own = base && is_ours(base.get()) ? make_group(base.get(), to_string(lease), was_there) : Fd();
  path = home + last;
  if (!own || !is_ours(own.get())) return failure("make the control group", path);
  const bool limited = write_word(own.get(), "cpu.cfs_period_us", std::to_string(period_us)) &&
                       write_word(own.get(), v1_file, std::to_string(percent * period_us / 100));
  if (!limited) return failure("limit the processor time of", path);
  gather(own.get(), members, home);
  return {};
}

// Processes that were forked meanwhile are in the group by birth, or come with the next order.
void CpuLimits::gather(int group, std::span<const ProcessRef> members, const std::string& home) const {
  for (const ProcessRef process : members) {
    const auto pidfd = proc::open_pidfd(root_, process);
    if (!pidfd || v1_home(process.pid) != home) continue;
    (void)move_process(root_, group, process.pid, pidfd->get(), [this](std::int32_t pid) { return v1_home(pid); });
  }
}

std::string CpuLimits::lift(LeaseId lease) {
  const auto found = limited_.find(lease);
  if (found == limited_.end()) return {};
  const std::string path = found->second;
  const Fd group = open_group(AT_FDCWD, path.c_str());
  if (group && !lift_group(group.get())) return failure("lift the limit of", path);
  limited_.erase(found);
  const proc::CgroupMount* v1 = hierarchies_.v1("cpu");
  if (v1 != nullptr && path.starts_with(v1->path + "/")) {  // rmdir refuses both unless they are empty
    (void)::rmdir(path.c_str());
    (void)::rmdir(path.substr(0, path.rfind('/')).c_str());
  }
  return {};
}

}  // namespace sublet::actor
