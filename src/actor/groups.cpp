// SPDX-License-Identifier: Apache-2.0
#include "actor/groups.h"

#include "actor/group_files.h"
#include "proc/pidfd.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sublet::actor {
namespace {

Groups::Place not_placed(std::string why) { return {.group = {}, .why_not = std::move(why), .from = {}}; }

}  // namespace

void enter_keeper_group(const proc::ProcRoot& root) {
  const auto hierarchies = proc::find_hierarchies(root);
  const auto groups = proc::cgroups_of(root, ::getpid());
  const proc::CgroupMount* mount = hierarchies ? hierarchies->v2() : nullptr;
  if (mount == nullptr || !groups || groups->v2.size() < 2 || groups->removed) return;
  const Fd present = open_group(AT_FDCWD, proc::directory_of(*mount, groups->v2).c_str());
  bool was_there = false;
  const Fd own =
      present && is_ours(present.get()) ? make_group(present.get(), std::string(keeper_group), was_there) : Fd();
  // The kernel lets no group with processes hand controllers to the groups below it.
  if (own && write_pid(own.get(), ::getpid()) == 0) (void)write_word(present.get(), "cgroup.subtree_control", "+cpu");
}

Groups::Groups(const proc::ProcRoot& root, std::string name) : root_(root), name_(std::move(name)) {}

void Groups::open() {
  auto found = proc::find_hierarchies(root_);
  hierarchies_ = found ? std::move(*found) : proc::Hierarchies{};
  left_behind_.clear();
  const proc::CgroupMount* mount = hierarchies_.v2();
  hierarchy_ = mount == nullptr ? "" : mount->path;
  if (mount == nullptr) return;
  each_lease_group(hierarchy_, name_, [this](LeaseId lease, const std::string& path, int) {
    if (::rmdir(path.c_str()) == 0) return;
    auto left = proc::find_lease_group(hierarchies_, path, lease);
    if (left) left_behind_.emplace(lease, std::move(*left));
  });
}

std::optional<proc::LeaseGroup> Groups::left_behind(LeaseId lease) const {
  const auto found = left_behind_.find(lease);
  return found == left_behind_.end() ? std::nullopt : std::optional(found->second);
}

std::string Groups::path_of(const std::string& inside) const {
  const proc::CgroupMount* mount = hierarchies_.v2();
  return mount == nullptr ? std::string() : proc::directory_of(*mount, inside);
}

// The group below which the lease's group belongs: the process's own one, or the one above `keeper_group`.
std::string Groups::place_for(const std::string& inside) const {
  const auto slash = inside.rfind('/');
  if (slash == std::string::npos || slash == 0 || inside.substr(slash + 1) != keeper_group) return inside;
  const Fd group = open_group(AT_FDCWD, path_of(inside).c_str());
  return group && is_ours(group.get()) ? inside.substr(0, slash) : inside;
}

Groups::Place Groups::place(LeaseId lease, std::int32_t pid, int pidfd, bool alone) {
  if (hierarchy_.empty()) return not_placed("no unified control group hierarchy is mounted");
  const auto groups = proc::cgroups_of(root_, pid);
  if (!groups || groups->v2.empty() || groups->removed) return not_placed("the program is in no control group");
  const std::string& inside = groups->v2;
  const std::string path = path_of(inside);
  if (path.empty()) return not_placed("the program's control group is not visible here");
  if (proc::lease_of_group(inside, name_) == lease) return found(inside, lease);
  Place made = make(lease, inside, pid, pidfd, alone);
  // A sweep may have removed the directory between its creation and its use.
  if (!made.group && !proc::is_dead(pidfd)) made = make(lease, inside, pid, pidfd, alone);
  return made;
}

int Groups::move(int to, std::int32_t pid, int pidfd) const {
  return move_process(root_, to, pid, pidfd, [this](std::int32_t other) {
    const auto groups = proc::cgroups_of(root_, other);
    return groups && !groups->removed ? path_of(groups->v2) : std::string();
  });
}

// The process is already in the lease's group, where an earlier run put it, if the directory is ours.
Groups::Place Groups::found(const std::string& inside, LeaseId lease) const {
  const std::string last = fmt::format("/{}/{}", name_, to_string(lease));
  const std::string path = path_of(inside.substr(0, inside.rfind(last) + last.size()));
  const Fd dir = open_group(AT_FDCWD, path.c_str());
  auto group = proc::find_lease_group(hierarchies_, path, lease);
  if (!dir || !is_ours(dir.get()) || !group)
    return not_placed("the control group of that name belongs to another user");
  return {.group = std::move(*group), .why_not = {}, .from = {}};
}

Groups::Place Groups::make(LeaseId lease, const std::string& inside, std::int32_t pid, int pidfd, bool alone) {
  const std::string path = path_of(place_for(inside));
  const auto failed = [&](const char* what) { return not_placed(fmt::format("{}: {}", what, std::strerror(errno))); };
  const Fd present = open_group(AT_FDCWD, path.c_str());
  if (!present) return failed("the program's control group cannot be opened");
  bool was_there = false;
  const Fd base = make_group(present.get(), name_, was_there);
  if (!base) return failed("no control group can be created at the program's place");
  if (!is_ours(base.get())) return not_placed("the control group of that name belongs to another user");
  const Fd own = make_group(base.get(), to_string(lease), was_there);
  if (!own) return failed("no control group can be created at the program's place");
  const std::string own_path = fmt::format("{}/{}/{}", path == "/" ? "" : path, name_, to_string(lease));
  auto group = proc::find_lease_group(hierarchies_, own_path, lease);
  if (!is_ours(own.get()) || !group) return not_placed("the control group of that name belongs to another user");
  if (was_there && alone) {
    const auto others = proc::processes_in(group->ref);
    if (!others || !others->pids.empty()) return not_placed("the control group of that name holds other processes");
  }
  if (const int problem = move(own.get(), pid, pidfd); problem != 0) {
    leave(*group);
    return not_placed(fmt::format("the program cannot be put into a control group: {}", std::strerror(problem)));
  }
  return {.group = std::move(*group), .why_not = {}, .from = inside};
}

void Groups::follow_into(const Place& place, std::int32_t pid, int pidfd) const {
  if (!place.group || place.from.empty()) return;
  const auto groups = proc::cgroups_of(root_, pid);
  if (!groups || groups->v2 != place.from) return;
  const Fd own = open_group(AT_FDCWD, place.group->ref.path.c_str());
  if (own) (void)move(own.get(), pid, pidfd);
}

void Groups::leave(const proc::LeaseGroup& group) {
  // rmdir refuses both unless they are empty.
  (void)::rmdir(group.ref.path.c_str());
  (void)::rmdir(group.ref.path.substr(0, group.ref.path.rfind('/')).c_str());
}

}  // namespace sublet::actor
