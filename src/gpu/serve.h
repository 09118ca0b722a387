// SPDX-License-Identifier: Apache-2.0
// What the modes of sublet-gpu that answer on a socket have in common. One thread, and one beside it while the driver
// is inside a call.
#pragma once

#include "base/fd.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace sublet::gpu {

// Answers each line on the socket with what `answer` returns (a line of its own), until the peer closes it. Returns
// 0 then; 1 when the socket fails, a line is longer than max_command, or `answer` says that it was no command.
int serve_lines(int socket, std::size_t max_command,
                const std::function<std::optional<std::string>(std::string_view)>& answer);

// While it lives: at the peer's end the process exits although a driver call hangs, unless that call sleeps in the
// kernel beyond signals. With `target`, a pidfd, only once that process has ended too: a call that changes another
// process is not to be cut off in the middle. A thread of its own looks, with all signals blocked: no driver is tried
// with calls that a signal interrupts.
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
