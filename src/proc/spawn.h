// SPDX-License-Identifier: Apache-2.0
// Starts a helper of ours that serves its parent on a socket and ends when that is closed.
#pragma once

#include "base/error.h"
#include "base/fd.h"

#include <sys/types.h>

#include <string>
#include <vector>

namespace sublet::proc {

struct Helper {
  pid_t pid = 0;  // to be waited for by the caller
  Fd socket;      // close-on-exec; blocking
};

// Where the helper finds its end of the socket.
inline constexpr int helper_socket = 3;

struct HelperLaunch {
  std::string program;                 // absolute path
  std::vector<std::string> arguments;  // without the program's name
  int socket_type = 0;                 // SOCK_STREAM or SOCK_SEQPACKET
  bool bare = false;                   // with an empty environment instead of ours
};

// The helper has its end of the socket, our 0, 1 and 2, no signal blocked and all by default.
Result<Helper> spawn_helper(const HelperLaunch& launch);

}  // namespace sublet::proc
