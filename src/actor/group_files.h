// SPDX-License-Identifier: Apache-2.0
// Directories of control groups: opening and making them, moving processes, and finding the groups of leases. Any
// thread.
#pragma once

#include "base/fd.h"
#include "base/ids.h"
#include "proc/process_table.h"

#include <functional>
#include <string>
#include <string_view>

namespace sublet::actor {

// Whether only we or root can have made the directory and can put processes into it.
bool is_ours(int dir);

// Opens a group, relative to `at`. Follows no link.
Fd open_group(int at, const char* path);
// Opens the group `name`, and makes it if it is missing. `was_there`: whether it existed.
Fd make_group(int above, const std::string& name, bool& was_there);

// Returns 0 or an errno. The kernel moves all threads of the process, or refuses.
int write_pid(int group, std::int32_t pid);
// Writes to an existing file of the group. False: errno.
bool write_word(int group, const char* file, std::string_view word);

// The directory of a process's own group in some hierarchy; "" if it is not visible.
using HomeOf = std::function<std::string(std::int32_t pid)>;
// Moves the process of `pidfd`, which has this pid, into the group `to`. If the pid was reused meanwhile, the newer
// process goes back to the group of its parent. Returns 0 or an errno.
int move_process(const proc::ProcRoot& root, int to, std::int32_t pid, int pidfd, const HomeOf& home_of);

// Calls `found` with each group "NAME/lease-7" that is ours, below the mount point `top`, innermost first. Limited to
// 32 levels and 20,000 groups. Then removes NAME if it is empty.
void each_lease_group(const std::string& top, const std::string& name,
                      const std::function<void(LeaseId, const std::string& path, int group)>& found);

}  // namespace sublet::actor
