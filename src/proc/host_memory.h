// SPDX-License-Identifier: Apache-2.0
// What host memory can still take: of the machine, and of the control groups that a process is charged to. Read only.
#pragma once

#include "base/units.h"
#include "proc/process_table.h"
#include "proc/swap.h"

#include <optional>
#include <span>
#include <string_view>

namespace sublet::proc {

struct HostFigures {
  Bytes available;                // MemAvailable; 0 where the kernel does not tell
  std::optional<Bytes> headroom;  // what the tightest group of any of the processes leaves; unset: none has a limit
  bool may_swap = false;          // pages of one of them may be written to a swap device, whatever can be done
  // The part of the last 10 s in which nobody got on for want of memory: on the machine, or in the group of one of
  // them, where it is most. Unset: the kernel does not tell.
  std::optional<double> pressure;
};

// "full avg10" of /proc/pressure/memory and of memory.pressure, as a part of 1. Unset: it is not there.
std::optional<double> parse_pressure(std::string_view text);

// MemAvailable and SwapTotal of /proc/meminfo. What is missing there is 0.
struct Meminfo {
  Bytes available;
  Bytes swap;
};
Meminfo parse_meminfo(std::string_view text);

// Of the process itself. Unset: it has ended, or the pid is another's.
struct ProcessMemory {
  Bytes resident;
  Bytes swapped;  // VmSwap: what of it is on a swap device
};
std::optional<ProcessMemory> process_memory(const ProcRoot& root, ProcessRef process);
std::optional<Bytes> resident_bytes(const ProcRoot& root, ProcessRef process);

// For what these processes take: each is charged to its own groups, whoever made it take that. Of the page cache, what
// was read once (inactive) counts as free, as the kernel drops it for whoever needs memory. What cannot be read has no
// limit. `by`: who could keep their groups from swap; those then count as kept. Of no process: the machine's figures.
// Blocks for a few small files of each group.
HostFigures host_figures(const ProcRoot& root, std::span<const std::int32_t> pids,
                         const std::optional<SwapStopper>& by = {});

}  // namespace sublet::proc
