// SPDX-License-Identifier: Apache-2.0
#include "proc/spawn.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>

namespace sublet::proc {

Result<Helper> spawn_helper(const HelperLaunch& launch) {
  int pair[2];
  if (::socketpair(AF_UNIX, launch.socket_type | SOCK_CLOEXEC, 0, pair) != 0) return from_errno("socketpair", errno);
  Helper helper;
  helper.socket = Fd(pair[0]);
  Fd theirs(pair[1]);
  if (theirs.get() == helper_socket) {  // dup2 to the same number would leave close-on-exec set
    theirs = Fd(::fcntl(theirs.get(), F_DUPFD_CLOEXEC, helper_socket + 1));
    if (!theirs) return from_errno("cannot start " + launch.program, errno);
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), helper_socket);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv{const_cast<char*>(launch.program.c_str())};
  for (const std::string& word : launch.arguments) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  char* nothing[] = {nullptr};
  const int failed = ::posix_spawn(&helper.pid, launch.program.c_str(), &actions, &attributes, argv.data(),
                                   launch.bare ? nothing : environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) return from_errno("cannot start " + launch.program, failed);
  return helper;
}

}  // namespace sublet::proc
