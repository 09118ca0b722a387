// SPDX-License-Identifier: Apache-2.0
// `run --notify`: tells a person that a long wait has ended. One thread.
#pragma once

#include "base/units.h"
#include "keep/signals.h"

#include <functional>
#include <string>

namespace sublet::cli {

inline constexpr Duration default_notify_after = std::chrono::seconds(10);
inline constexpr const char* notify_send = "notify-send";

struct Notice {
  std::string command;   // notify_send: a desktop notice; else a line for sh -c
  std::string consumer;  // consumer name of the lease
  std::string lease;     // "lease-7"
  Bytes vram;            // size of the lease on each device
  Duration waited{};     // time in the queue
};

// Starts the command in a session of its own and returns at once. The command gets SUBLET_LEASE, SUBLET_NAME and
// SUBLET_WAITED_SECONDS, rounded as in the text of the notice. `warn` is told of its failure, in a process of its own
// that keeps only stderr and `status_fd` (-1: none) open. Call it before the program of the lease is started.
void send_notice(const Notice& notice, const keep::Signals& signals, int status_fd,
                 const std::function<void(const std::string& line)>& warn);

}  // namespace sublet::cli
