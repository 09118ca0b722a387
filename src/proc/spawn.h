// SPDX-License-Identifier: Apache-2.0
// Starts a helper that serves its parent on a socket and ends when the socket is closed.
#pragma once

#include "base/error.h"
#include "base/fd.h"

#include <sys/types.h>

#include <string>
#include <vector>

namespace sublet::proc {

struct Helper {
  pid_t pid = 0;  // the caller must wait for it
  Fd socket;      // close-on-exec; blocking
};

// The descriptor number of the helper's socket.
inline constexpr int helper_socket = 3;

struct HelperLaunch {
  std::string program;                 // absolute path
  std::vector<std::string> arguments;  // without the program's name
  int socket_type = 0;                 // SOCK_STREAM or SOCK_SEQPACKET
  bool bare = false;                   // true: the helper starts with an empty environment
};

// Starts the helper with its socket and our 0, 1 and 2. All signals are unblocked and have their default action.
Result<Helper> spawn_helper(const HelperLaunch& helper);

}  // namespace sublet::proc
