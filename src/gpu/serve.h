// SPDX-License-Identifier: Apache-2.0
// The shared part of the modes of sublet-gpu that serve a socket. One thread, and a second thread during a driver call.
#pragma once

#include "base/fd.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace sublet::gpu {

// Answers each line on the socket with the line that `answer` returns, until the peer closes the socket. Returns 0
// then. Returns 1 if the socket fails, a line is longer than max_command, or `answer` returns nothing because the line
// is no command.
int serve_lines(int socket, std::size_t max_command,
                const std::function<std::optional<std::string>(std::string_view)>& answer);

// Watches the socket while the object lives. At the peer's end the process exits, even if a driver call hangs, unless
// the call sleeps uninterruptibly. With `target`, a pidfd, the process exits only after the target has ended too,
// because a call that changes another process must not be interrupted. A separate thread watches, with all signals
// blocked, so that no signal interrupts a driver call.
class Watch {
 public:
  explicit Watch(int socket, int target = -1);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  Fd stop_;
  std::thread thread_;
};

}  // namespace sublet::gpu
