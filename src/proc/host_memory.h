// SPDX-License-Identifier: Apache-2.0
// Reads how much more host memory is available: on the machine, and in the control groups that are charged for a
// process.
#pragma once

#include "base/units.h"
#include "proc/process_table.h"
#include "proc/swap.h"

#include <optional>
#include <span>
#include <string_view>

namespace sublet::proc {

struct HostFigures {
  Bytes available;                // MemAvailable; 0 if the kernel does not tell
  std::optional<Bytes> headroom;  // memory left in the tightest group of the processes; unset: no group has a limit
  bool may_swap = false;          // pages of a process may go to a swap device, and this cannot be prevented
  // 0 … 1: share of the last 10 s in which all tasks waited for memory; the maximum of the machine and the groups.
  // Unset: the kernel does not tell.
  std::optional<double> pressure;
};

// Returns "full avg10" of /proc/pressure/memory or memory.pressure as a number from 0 to 1. Unset: the line is missing.
std::optional<double> parse_pressure(std::string_view text);

// MemAvailable and SwapTotal of /proc/meminfo. A missing line counts as 0.
struct Meminfo {
  Bytes available;
  Bytes swap;
};
Meminfo parse_meminfo(std::string_view text);

// Memory of a single process. The functions return nothing if the process has ended, or if another process has its pid.
struct ProcessMemory {
  Bytes resident;
  Bytes swapped;  // VmSwap: its bytes on a swap device
};
std::optional<ProcessMemory> process_memory(const ProcRoot& root, ProcessRef process);
std::optional<Bytes> resident_bytes(const ProcRoot& root, ProcessRef process);

// Returns the figures for the memory of these processes. Each process is charged to its own groups. Page cache that was
// read once (inactive) counts as free, because the kernel drops it. A group that cannot be read has no limit. `by`: the
// user and process that could keep the groups from swap; such groups count as kept. Without processes, returns the
// machine's figures. Blocks while a few small files of each group are read.
HostFigures host_figures(const ProcRoot& root, std::span<const std::int32_t> pids,
                         const std::optional<SwapStopper>& by = {});

}  // namespace sublet::proc
