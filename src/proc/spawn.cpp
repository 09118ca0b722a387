// SPDX-License-Identifier: Apache-2.0
#include "proc/spawn.h"

#include "proc/launch.h"

#include <sys/socket.h>
#include <cerrno>

namespace sublet::proc {

Result<Helper> spawn_helper(const HelperLaunch& helper) {
  int pair[2];
  if (::socketpair(AF_UNIX, helper.socket_type | SOCK_CLOEXEC, 0, pair) != 0) return from_errno("socketpair", errno);
  Fd ours(pair[0]);
  const Fd theirs(pair[1]);
  Launch launch{.program = helper.program, .arguments = helper.arguments};
  launch.descriptors = {{helper_socket, theirs.get()}};
  if (helper.bare) launch.environment.emplace();
  const auto pid = launch.start();
  if (!pid) return pid.error();
  return Helper{*pid, std::move(ours)};
}

}  // namespace sublet::proc
