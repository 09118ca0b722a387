// SPDX-License-Identifier: Apache-2.0
// What the driver reports about all GPUs of the machine at one moment, as values, and their form on the
// socket between sublet-gpu and subletd: one line of JSON. Pure functions, any thread. The reader does not
// trust the writer's bytes.
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::gpu {

inline constexpr std::size_t max_devices = 32;
inline constexpr std::size_t max_processes = 1024;  // of one device
inline constexpr std::size_t max_line = 4u << 20;   // bytes of one encoded snapshot

struct GpuProcess {
  // start_ticks 0: no process that could use a card has this pid in /proc, although it was listed repeatedly.
  ProcessRef process;
  bool hidden = false;        // it exists, but /proc does not show it to us (mounted with hidepid)
  std::optional<Bytes> used;  // unset: the driver does not tell
  bool foreign_pid = false;   // judge(): the pid does not exist here, so it must be of another pid namespace
  bool operator==(const GpuProcess&) const = default;
};

struct GpuDevice {
  std::string uuid;  // may be empty when `problem` is set: the driver would not even tell that
  std::string name;
  int index = 0;  // NVML's, PCI bus order
  std::string pci_bus_id;
  bool simulated = false;  // its name says so
  bool mig = false;        // cut into MIG slices, which are not managed
  Bytes link_per_second;  // the most its link to the host carries each way; 0: not known
  Bytes total;
  Bytes driver_reserved;  // 0 where the driver counts it as used (memory info v1)
  Bytes used;             // physically, driver_reserved not included
  std::vector<GpuProcess> processes;
  std::string problem;  // not empty: do not use the numbers
  bool lost = false;    // that problem is that the driver calls it lost: fallen off the bus
  bool operator==(const GpuDevice&) const = default;
};

struct GpuSnapshot {
  std::int64_t began_ns = 0;  // CLOCK_MONOTONIC, before the first question to the driver
  std::int64_t ended_ns = 0;  // after the last
  std::string driver_version;
  std::string library;  // path of the NVML library that answered
  std::vector<GpuDevice> devices;
  std::string problem;  // not empty: there is nothing in it (no library, no driver, …)
  bool operator==(const GpuSnapshot&) const = default;
};

// True if a card says by its name that it is simulated. No vendor sells one whose name holds that word.
bool says_simulated(std::string_view device_name);

std::string encode_snapshot(std::uint64_t id, const GpuSnapshot& snapshot);  // one line, ending in '\n'

struct SnapshotReply {
  std::uint64_t id = 0;
  GpuSnapshot snapshot;
};
// Accepts what encode_snapshot writes and nothing that breaks a limit or a range above: bytes 0 … 2^62, pids
// positive, at most max_devices and max_processes, texts short and printable, uuids and indexes each once. It
// does not judge whether the numbers make sense.
Result<SnapshotReply> decode_snapshot(std::string_view line);

// The snapshot with `foreign_pid` set and with a `problem` on each device whose single reading cannot be
// true: more used than there is, a pid listed twice, pids that do not exist here, MIG. Each text carries the
// numbers. A problem that is there already stays. (Whether a list can be complete, the core knows.)
GpuSnapshot judge(GpuSnapshot snapshot);

}  // namespace sublet::gpu
