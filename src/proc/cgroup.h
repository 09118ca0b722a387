// SPDX-License-Identifier: Apache-2.0
// Control groups, read only: where they are mounted, who is in which, and whether a directory that somebody
// names is one.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "proc/process_table.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::proc {

struct CgroupMount {
  std::string path;  // where it is mounted
  std::string root;  // which group of the hierarchy stands there ("/" unless a part was bind-mounted)
  bool v2 = false;
  std::vector<std::string> controllers;  // v1 only: "memory", "cpu", "name=systemd"
  bool operator==(const CgroupMount&) const = default;
};

// The directory of the group that is at `inside` in the hierarchy. "": it cannot be seen there; only a part of the
// hierarchy may be mounted, or it may lie outside of our own cgroup namespace.
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
  std::vector<CgroupMount> mounts;  // in the order of mountinfo; one that another mount covers is left out

  const CgroupMount* v2() const;                             // null: none
  const CgroupMount* v1(std::string_view controller) const;  // null: none
};

Hierarchies parse_mountinfo(std::string_view text);
Result<Hierarchies> find_hierarchies(const ProcRoot& root);  // of our own mount namespace

// The groups of one process: path inside each hierarchy. Unset v2: "".
struct ProcessCgroups {
  std::string v2;                         // "/user.slice/…"
  std::map<std::string, std::string> v1;  // controller → path
  bool removed = false;                   // the v2 directory was removed under it
};
ProcessCgroups parse_process_cgroups(std::string_view text);
Result<ProcessCgroups> cgroups_of(const ProcRoot& root, std::int32_t pid);

// A group directory as it was when somebody named it. The inode tells a new directory of the same name apart.
struct CgroupRef {
  std::string path;  // absolute, without links
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool v2 = false;
  bool operator==(const CgroupRef&) const = default;
};

// BadRequest with the reason and a hint unless `path` is a directory in a mounted cgroup hierarchy and not
// the root of one: everything on the machine is in the root.
Result<CgroupRef> check_cgroup(const Hierarchies& hierarchies, const std::string& path);

struct CgroupProcesses {
  std::vector<std::int32_t> pids;  // ordered, each once
  int outside = 0;                 // processes of a pid namespace that we cannot see
};
// All processes in the group and below. NotFound: the directory is gone or another one now. Unavailable:
// deeper than 32 levels or more than 65536 processes.
Result<CgroupProcesses> processes_in(const CgroupRef& group);

// The same without any check that `path` is a cgroup: for literal trees in tests.
Result<CgroupProcesses> processes_below(const std::string& path);

}  // namespace sublet::proc
