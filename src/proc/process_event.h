// SPDX-License-Identifier: Apache-2.0
// Messages of the kernel's process connector: forks, execs and exits of all processes of this machine. Pure functions.
#pragma once

#include "base/ids.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace sublet::proc {

struct ProcessEvent {
  enum class Kind { acknowledged, fork, exec, exit };
  Kind kind = Kind::acknowledged;
  std::int32_t pid = 0;     // of the process; 0 for acknowledged
  std::int32_t parent = 0;  // fork, exit: pid of its parent at this time; 0: not told
  std::int64_t at_ns = 0;   // CLOCK_MONOTONIC in ns
  std::int32_t error = 0;   // acknowledged: errno of the kernel's refusal; 0: the kernel sends events
  bool operator==(const ProcessEvent&) const = default;
};

// Reads a netlink datagram of the kernel. Unset: another message, a cut one, or an event of a thread.
std::optional<ProcessEvent> parse_process_event(std::span<const std::byte> datagram);

}  // namespace sublet::proc
