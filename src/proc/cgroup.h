// SPDX-License-Identifier: Apache-2.0
// Reads control groups: where they are mounted, which processes are in a group, and whether a directory that a user
// names is a group. Nothing is written.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "proc/process_table.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::proc {

struct CgroupMount {
  std::string path;  // the mount point
  std::string root;  // the group of the hierarchy that is mounted there ("/" unless a part was bind-mounted)
  bool v2 = false;
  std::vector<std::string> controllers;  // v1 only: "memory", "cpu", "name=systemd"
  bool operator==(const CgroupMount&) const = default;
};

// Returns the directory of the group with the path `inside` in the hierarchy. "": the mount does not show this group.
// Perhaps only a part of the hierarchy is mounted, or the group lies outside of our cgroup namespace.
std::string directory_of(const CgroupMount& mount, const std::string& inside);

enum class CgroupLayout {
  none,    // no cgroup file system is mounted here
  v2,      // the unified hierarchy alone
  hybrid,  // controllers in v1, and the unified hierarchy mounted beside them
  v1,      // no unified hierarchy
};
std::string_view to_string(CgroupLayout layout);

struct Hierarchies {
  CgroupLayout layout = CgroupLayout::none;
  std::vector<CgroupMount> mounts;  // in the order of mountinfo; without mounts that another mount covers

  const CgroupMount* v2() const;                             // null: none
  const CgroupMount* v1(std::string_view controller) const;  // null: none
};

Hierarchies parse_mountinfo(std::string_view text);
Result<Hierarchies> find_hierarchies(const ProcRoot& root);  // of our mount namespace

// The same, read again only after mounts have changed: the list of mounts may be long. One thread at a time.
class MountedHierarchies {
 public:
  const Hierarchies* now(const ProcRoot& root);  // null: they cannot be read

 private:
  Fd mounts_;  // its poll() tells of changes
  std::optional<Hierarchies> known_;
};

// The groups of a process: its path in each hierarchy. `v2` is "" if it is not known.
struct ProcessCgroups {
  std::string v2;                         // "/user.slice/…"
  std::map<std::string, std::string> v1;  // controller → path
  bool removed = false;                   // the v2 directory was removed while the process was in it
};
ProcessCgroups parse_process_cgroups(std::string_view text);
Result<ProcessCgroups> cgroups_of(const ProcRoot& root, std::int32_t pid);
// The directories of these groups, one in each hierarchy that shows its group. Not of a removed group: another one may
// have its name.
std::vector<std::string> directories_of(const Hierarchies& hierarchies, const ProcessCgroups& groups);

// A group directory at the time when a user named it. The inode distinguishes it from a later directory of the same
// name.
struct CgroupRef {
  std::string path;  // absolute, without symbolic links
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint32_t uid = 0;  // owner of the directory
  bool v2 = false;
  bool operator==(const CgroupRef&) const = default;
};

// Returns the directory that `path` means: a directory in a mounted hierarchy, or a group's path as /proc/PID/cgroup
// shows it. The group need not exist yet. BadRequest as of check_cgroup().
Result<std::string> group_directory(const Hierarchies& hierarchies, const std::string& path);

struct GroupState {
  std::uint64_t inode = 0;  // 0: the directory does not exist
  bool populated = false;   // a process is in the group or below it
  bool certain = true;      // false: it looks empty, and its processes may have moved between its groups meanwhile
};
// Looks at the directory of a group. An error means that nothing is known.
Result<GroupState> look_at_group(const std::string& path);

// Returns the group of the directory `path`. BadRequest with a hint if `path` is not a directory in a mounted cgroup
// hierarchy, or is its root. Every process of the machine is in the root.
Result<CgroupRef> check_cgroup(const Hierarchies& hierarchies, const std::string& path);

struct CgroupProcesses {
  std::vector<std::int32_t> pids;  // ordered, each once
  int outside = 0;                 // number of processes in pid namespaces that we cannot see
};
// Returns all processes in the group and below it. NotFound: the directory is gone or was replaced. Unavailable: more
// than 32 levels or more than 65536 processes.
Result<CgroupProcesses> processes_in(const CgroupRef& group);

// The same without a check that `path` is a cgroup. For test trees.
Result<CgroupProcesses> processes_below(const std::string& path);

}  // namespace sublet::proc
