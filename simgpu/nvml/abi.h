// SPDX-License-Identifier: Apache-2.0
// The structures of NVML's interface, declared anew from its public documentation. Sizes are part of the interface: a
// client built against another version passes another structure, or another version number inside it.
#pragma once

#include <cstdint>

namespace simgpu::nvml {

using Handle = void*;  // nvmlDevice_t
using Count = unsigned int;
using Wide = unsigned long long;

enum Return : int {
  success = 0,
  uninitialized = 1,
  invalid_argument = 2,
  not_supported = 3,
  no_permission = 4,
  not_found = 6,
  insufficient_size = 7,
  driver_not_loaded = 9,
  timeout = 10,
  gpu_is_lost = 15,
  argument_version_mismatch = 25,
  unknown = 999,
};

// The value that NVML writes where a number has no meaning, such as the MIG instance of a whole card.
inline constexpr Count no_instance = 0xffffffff;

// A structure's version number: its own size and a counter.
template <typename Struct>
constexpr Count version_of(Count counter) {
  return static_cast<Count>(sizeof(Struct)) | counter << 24;
}

struct PciInfoV2 {  // nvmlDeviceGetPciInfo and _v2
  char bus_id[16];
  Count domain, bus, device, device_id, subsystem_id;
  Count reserved[4];
};
static_assert(sizeof(PciInfoV2) == 52);

struct PciInfo {  // _v3
  char bus_id_legacy[16];
  Count domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);

struct PciInfoExt {
  Count version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
  char bus_id[32];
};
static_assert(sizeof(PciInfoExt) == 0x40);

struct Memory {
  Wide total, free, used;
};

struct MemoryV2 {
  Count version;
  Wide total, reserved, free, used;
};
static_assert(version_of<MemoryV2>(2) == 0x02000028);

struct Bar1Memory {
  Wide total, free, used;
};

struct ProcessInfoV1 {  // for the calls without a version in their name
  Count pid;
  Wide used_bytes;
};
static_assert(sizeof(ProcessInfoV1) == 16);

struct ProcessInfo {  // for _v2 and _v3
  Count pid;
  Wide used_bytes;
  Count gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);

struct ProcessDetail {
  Count pid;
  Wide used_bytes;
  Count gpu_instance, compute_instance;
  Wide protected_bytes;
};
static_assert(sizeof(ProcessDetail) == 32);

struct ProcessDetailList {
  Count version, mode, count;
  ProcessDetail* processes;
};
static_assert(version_of<ProcessDetailList>(1) == 0x01000018);

struct Attributes {  // of a MIG slice
  Count multiprocessors, copy_engines, decoders, encoders, jpeg_engines, optical_flow_engines;
  Count gpu_instance_parts, compute_instance_parts;
  Wide memory_mib;
};
static_assert(sizeof(Attributes) == 40);

struct Utilization {
  Count gpu, memory;
};

struct ProcessUtilizationSample {
  Count pid;
  Wide timestamp_us;
  Count sm, memory, encoder, decoder;
};
static_assert(sizeof(ProcessUtilizationSample) == 32);

struct ProcessUtilizationInfo {
  Wide timestamp_us;
  Count pid, sm, memory, encoder, decoder, jpeg, optical_flow;
};
static_assert(sizeof(ProcessUtilizationInfo) == 40);

struct ProcessesUtilization {
  Count version, count;
  Wide last_seen_us;
  ProcessUtilizationInfo* samples;
};
static_assert(version_of<ProcessesUtilization>(1) == 0x01000018);

struct TemperatureV1 {
  Count version, sensor;
  int celsius;
};
static_assert(version_of<TemperatureV1>(1) == 0x0100000c);

union Value {
  double d;
  unsigned int ui;
  unsigned long ul;
  unsigned long long ull;
  long long sll;
  int si;
  unsigned short us;
};

struct FieldValue {
  Count field, scope;
  long long timestamp_us, latency_us;
  Count value_type;  // 0 double, 1 unsigned, 3 unsigned long long
  int result;
  Value value;
};
static_assert(sizeof(FieldValue) == 40);

struct EventDataV1 {
  Handle device;
  Wide type, data;
};

struct EventData {
  Handle device;
  Wide type, data;
  Count gpu_instance, compute_instance;
};
static_assert(sizeof(EventData) == 32);

}  // namespace simgpu::nvml
