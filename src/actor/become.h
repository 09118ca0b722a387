// SPDX-License-Identifier: Apache-2.0
// Turns a fork of the actor into a program with another user's rights. Only this file gives rights away.
#pragma once

#include "proc/process_table.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sublet::actor {

struct Becoming {
  const proc::Rights& rights;  // plain (process_table.h)
  const std::string& program;
  const std::vector<std::string>& words;        // the arguments, with the program's name first
  const std::vector<std::string>& environment;  // NAME=VALUE
  int socket = -1;                              // becomes proc::helper_socket; must be 10 or more
  int trouble = -1;                             // pipe for a Trouble if become() fails; must be 10 or more
};

// The failure of become(), as the parent reads it.
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

// Becomes the program. Call in a child of a process with one thread. The program has the user, group and groups of
// `rights`, and a session of its own. Its only descriptor is the socket, and no signal is blocked or ignored. It has no
// capability and cannot get one. A program for a process of root keeps CAP_SYS_PTRACE, if we have it, because it must
// look into root's process. Never returns.
//
// If `trouble` closes without a Trouble, every step that can fail is done. Left are only the last rights of root and
// the exec. The pipe closes before the user can stop the child, so the parent never waits for the user. The user may
// lower the child's priority just before, but that wait is bounded.
[[noreturn]] void become(const Becoming& wanted);

struct KeeperBecoming {
  std::uint32_t uid = 0;       // as root: any user with an account; otherwise the own user
  const std::string& program;  // absolute path of sublet-keep
  int document = -1;           // becomes proc::document_descriptor; must be 10 or more
  int report = -1;             // becomes proc::report_descriptor; must be 10 or more
};

// Becomes the keeper of a user, with the groups that the account database gives the user, as after a login. The keeper
// has only these descriptors, PATH as its environment, a session of its own, no blocked or ignored signal, umask 022,
// and the root directory. A keeper of another user than root has no capability. Never returns. A failure is written to
// `report` (proc/detached.h). The account database may hang: the process ends after a minute, and nobody should wait
// for it. Call in a process that is nobody's child, or in a child; other threads of the parent may have asked the
// account database.
[[noreturn]] void become_keeper(const KeeperBecoming& wanted);

// Gives up a capability of this thread for ever, unless an exec as root gives it back. Call before other threads are
// started. False: the kernel refused, with errno.
bool give_up_capability(unsigned capability);

}  // namespace sublet::actor
