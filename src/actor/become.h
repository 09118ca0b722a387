// SPDX-License-Identifier: Apache-2.0
// A fork of the actor becomes another user's program. The only place where rights are given away.
#pragma once

#include "proc/process_table.h"

#include <string>
#include <vector>

namespace sublet::actor {

struct Becoming {
  const proc::Rights& rights;  // plain (process_table.h)
  const std::string& program;
  const std::vector<std::string>& words;        // with the program's name
  const std::vector<std::string>& environment;  // NAME=VALUE
  int socket = -1;                              // becomes proc::helper_socket; 10 or more
  int trouble = -1;                             // where a Trouble is written if it fails, see become(); 10 or more
};

// What went wrong, as the parent reads it.
struct Trouble {
  int step = 0;   // index into becoming_steps
  int error = 0;  // errno
};
inline constexpr const char* becoming_steps[] = {
    "no descriptors are free for it",
    "its groups are refused",
    "its group is refused",
    "its user is refused",
    "the rights are not its own",
    "its capabilities are refused",
    "it cannot be kept from new rights",
    "sublet-gpu cannot be started",
};

// In a child of a process with one thread. With the user, group and groups of `rights`, in a session of its own, with
// no descriptor but the socket, no signal blocked or ignored, no capability and no way to get one; for root's processes
// CAP_SYS_PTRACE stays if we have it, without which root's own could not be looked into. Never returns.
//
// The end of `trouble` without a word: all is done that can fail, and what is left is to let go of the last of root and
// to start. It comes before the child is its user's, who may stop it from then on: who waits for it waits for nobody
// else. (Its user may give it the least of priorities a moment before; that wait is bounded.)
[[noreturn]] void become(const Becoming& wanted);

}  // namespace sublet::actor
