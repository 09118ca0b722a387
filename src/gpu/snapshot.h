// SPDX-License-Identifier: Apache-2.0
// The driver's report about all devices at one moment, as values, and its form on the socket between sublet-gpu and
// subletd: a line of JSON. Pure functions, any thread. The reader does not trust the writer's bytes.
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "base/links.h"
#include "base/units.h"
#include "gpu/condition.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::gpu {

inline constexpr std::size_t max_devices = 256;     // with MIG slices
inline constexpr std::size_t max_processes = 1024;  // of one device
inline constexpr std::size_t max_line = 4u << 20;   // bytes of one encoded snapshot

struct GpuProcess {
  // start_ticks is 0 if /proc has no process with this pid that could use a GPU, although the driver listed it
  // repeatedly.
  ProcessRef process;
  bool hidden = false;        // the process exists, but /proc hides it from us (hidepid)
  std::optional<Bytes> used;  // unset: the driver does not tell
  // Part of the time since the last reading in which it used the device, 0 to 100; unset: the driver does not tell.
  std::optional<int> busy_percent{};
  // Mean part of that time in which its kernels ran, 0 to 100; as above. Copies and video engines do not count.
  std::optional<int> computing_percent{};
  bool graphics_only = false;  // it only draws: the driver lists it among graphics programs, and nowhere else
  bool foreign_pid = false;    // set by judge(): the pid does not exist here, so it is of another pid namespace
  bool operator==(const GpuProcess&) const = default;
};

struct GpuDevice {
  std::string uuid;  // may be empty if `problem` is set
  std::string name;
  int index = 0;  // NVML's index, in PCI bus order
  std::string pci_bus_id;
  bool simulated = false;  // the name says that the device is simulated
  bool mig = false;        // a card in MIG mode: it has no numbers, and its slices follow as devices
  std::string parent;      // of a MIG slice: uuid of its card; else ""
  int slice = -1;          // of a MIG slice: index among the slices of its card; else -1
  bool unified = false;    // without memory of its own: total and used are those of the machine
  Bytes link_per_second;   // bytes a second of its link to the host in each direction; 0: not known
  Links links;             // with other cards of the machine; a slice has none
  Bytes total;
  Bytes driver_reserved;              // 0 if the driver counts it as used (memory info v1)
  Bytes used;                         // physical bytes, without driver_reserved
  std::optional<int> busy_percent{};  // part of the last sampling period in which anything ran; unset: not told
  std::vector<GpuProcess> processes;
  Facts facts{};        // a lost device: as of its last reading, and its events
  std::string problem;  // not empty: the numbers are not valid
  bool lost = false;    // `problem` says that the device is lost: fallen off the bus
  bool operator==(const GpuDevice&) const = default;
};

struct GpuSnapshot {
  std::int64_t began_ns = 0;  // CLOCK_MONOTONIC in ns, before the first call of the driver
  std::int64_t ended_ns = 0;  // after the last call
  std::string driver_version;
  std::string library;  // path of the NVML library
  std::vector<GpuDevice> devices;
  std::string problem;  // not empty: no devices were read (no library, no driver, …)
  bool operator==(const GpuSnapshot&) const = default;
};

// Whether the name says that the device is simulated. No vendor sells a device with that word in its name.
bool says_simulated(std::string_view device_name);

std::string encode_snapshot(std::uint64_t id, const GpuSnapshot& snapshot);  // one line, ending in '\n'

struct SnapshotReply {
  std::uint64_t id = 0;
  GpuSnapshot snapshot;
};
// Decodes a line of encode_snapshot. Refuses values outside the limits: bytes 0 … 2^62, positive pids, at most
// max_devices and max_processes, short and printable texts, each uuid, and each index and slice, once. Does not check
// whether the numbers make sense.
Result<SnapshotReply> decode_snapshot(std::string_view line);

// Sets `foreign_pid`, and sets `problem` on each device whose reading cannot be true: more used than there is, a pid
// listed twice, pids that do not exist here. Each text contains the numbers. An existing problem stays. The core
// decides whether a list is complete.
GpuSnapshot judge(GpuSnapshot snapshot);

}  // namespace sublet::gpu
