// SPDX-License-Identifier: Apache-2.0
// Properties of cards. Figures that depend on a chip are from a recent data-centre card, so that programs take their
// usual paths. Features that are not simulated are reported as unsupported.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "context.h"
#include "module.h"

using namespace simgpu;

namespace {

// By number, as documented. Numbers that are absent here are no attributes.
const std::map<int, int>& fixed_attributes() {
  static const auto* all =
      new std::map<int, int>{{1, max_threads_per_block},
                             {2, 1024},
                             {3, 1024},
                             {4, 64},
                             {5, 2147483647},
                             {6, 65535},
                             {7, 65535},
                             {8, max_shared_per_block},
                             {9, 65536},
                             {10, 32},
                             {11, 2147483647},
                             {12, registers_per_processor},
                             {13, 1980000},
                             {14, 512},
                             {15, 1},
                             {17, 0},
                             {18, 0},
                             {19, 1},
                             {20, 0},
                             // textures and surfaces
                             {21, 131072},
                             {22, 131072},
                             {23, 65536},
                             {24, 16384},
                             {25, 16384},
                             {26, 16384},
                             {27, 32768},
                             {28, 32768},
                             {29, 2048},
                             {30, 512},
                             {31, 1},
                             {32, 1},
                             {35, 0},
                             {36, 2619000},
                             {37, 5120},
                             {38, 52428800},
                             {39, max_threads_per_processor},
                             {41, 1},
                             {42, 32768},
                             {43, 2048},
                             {44, 1},
                             {45, 32768},
                             {46, 32768},
                             {47, 8192},
                             {48, 8192},
                             {49, 32768},
                             {51, 32},
                             {52, 32768},
                             {53, 32768},
                             {54, 2046},
                             {55, 32768},
                             {56, 131072},
                             {57, 65536},
                             {58, 16384},
                             {59, 16384},
                             {60, 16384},
                             {61, 32768},
                             {62, 2048},
                             {63, 32768},
                             {64, 32768},
                             {65, 2048},
                             {66, 32768},
                             {67, 32768},
                             {68, 2046},
                             {69, 268435456},
                             {70, 131072},
                             {71, 65000},
                             {72, 2097120},
                             {73, 32768},
                             {74, 32768},
                             {77, 32768},
                             {78, 1},  // stream priorities
                             {79, 1},
                             {80, 1},
                             {81, max_shared_per_processor},
                             {82, registers_per_processor},
                             {83, 1},  // managed memory
                             {84, 0},
                             {86, 0},
                             {87, 2},
                             {88, 0},
                             {89, 1},  // concurrent managed access
                             {90, 1},
                             {91, 1},  // registered memory has one address
                             {92, 0},
                             {93, 0},
                             {94, 0},  // stream memory operations, first form
                             {95, 1},
                             {96, 0},
                             {97, max_shared_opt_in},
                             {98, 0},
                             {99, 1},  // host registration
                             {100, 0},
                             {101, 0},
                             {102, 1},
                             {103, 1},  // virtual memory management, and its export by file descriptor
                             {104, 0},
                             {105, 0},
                             {106, max_blocks_per_processor},
                             {107, 0},
                             {108, 0},
                             {109, 0},
                             {110, 0},
                             {111, 1024},
                             {112, 0},
                             {113, 1},  // read-only registration
                             {114, 0},
                             {115, 1},  // pools
                             {116, 0},
                             {117, 0},
                             {118, 0},
                             {119, 0},
                             {120, 1},
                             {121, 0},
                             {122, 0},
                             {123, 0},
                             {124, 0},
                             {125, 0},
                             {126, 1},
                             {127, 0},
                             {128, 0},
                             {129, 0},
                             {130, 0},
                             {131, -1},
                             {132, 0},
                             {133, 0},
                             {134, -1},
                             {135, 0},
                             {136, 0},
                             {137, 0},
                             {138, 0},
                             {139, 0},
                             {140, 0},
                             {141, 0},
                             {142, 0},
                             {143, 0},
                             {144, 0},
                             {145, 0},
                             {146, 0},
                             {147, 0}};
  return *all;
}

layout::DeviceRecord& record_of(CUdevice device) {
  return driver().table->device(driver().cards[static_cast<std::size_t>(device)]);
}

int capability_of(CUdevice device) {
  return static_cast<int>(driver().table->capability(driver().cards[static_cast<std::size_t>(device)]));
}

// A slice has its part of them.
std::uint64_t multiprocessors_of(const layout::DeviceRecord& record, const Table& table) {
  const std::uint64_t all = table.get(Setting::multiprocessors), parts = record.parts.load();
  return parts == 0 ? all : std::max<std::uint64_t>(all * parts / all_parts, 1);
}

CUresult attribute_of(CUdevice device, int attribute, int& value) {
  const auto& record = record_of(device);
  const auto& table = *driver().table;
  switch (attribute) {
    case 16: value = static_cast<int>(multiprocessors_of(record, table)); return CUDA_SUCCESS;
    case 18: value = record.unified.load() != 0; return CUDA_SUCCESS;  // integrated
    case 33: value = static_cast<int>(record.pci_bus); return CUDA_SUCCESS;
    case 34: value = static_cast<int>(record.pci_device); return CUDA_SUCCESS;
    case 40: value = static_cast<int>(table.get(Setting::copy_engines)); return CUDA_SUCCESS;
    case 50: value = static_cast<int>(record.pci_domain); return CUDA_SUCCESS;
    case 75: value = capability_of(device) / 10; return CUDA_SUCCESS;
    case 76: value = capability_of(device) % 10; return CUDA_SUCCESS;
    case 85: value = device; return CUDA_SUCCESS;
    default: break;
  }
  const auto at = fixed_attributes().find(attribute);
  if (at == fixed_attributes().end()) return CUDA_ERROR_INVALID_VALUE;
  value = at->second;
  return CUDA_SUCCESS;
}

CUresult uuid_of(CUuuid* out, CUdevice device) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(out->bytes, record_of(device).uuid.data(), sizeof out->bytes);
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_API cuDeviceGetCount(int* out) {
  SIMGPU_ENTER(cuDeviceGetCount);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = static_cast<int>(driver().cards.size());
  return CUDA_SUCCESS;
}
SIMGPU_API cuDeviceGet(CUdevice* out, int ordinal) {
  SIMGPU_ENTER(cuDeviceGet);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *out = ordinal;
  return CUDA_SUCCESS;
}
SIMGPU_API cuDeviceGetName(char* out, int length, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetName);
  if (!out || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(out, static_cast<std::size_t>(length), "%s", record_of(device).name.data());
  return CUDA_SUCCESS;
}
SIMGPU_API cuDeviceGetUuid(CUuuid* out, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetUuid);
  return uuid_of(out, device);
}
SIMGPU_API cuDeviceGetUuid_v2(CUuuid* out, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetUuid_v2);
  return uuid_of(out, device);
}
SIMGPU_API cuDeviceGetLuid(char*, unsigned*, CUdevice) {
  SIMGPU_ENTER(cuDeviceGetLuid);
  return CUDA_ERROR_NOT_SUPPORTED;  // an identifier of another operating system
}
SIMGPU_API cuDeviceTotalMem_v2(std::size_t* out, CUdevice device) {
  SIMGPU_ENTER(cuDeviceTotalMem_v2);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *out = record_of(device).total - record_of(device).reserve;
  return CUDA_SUCCESS;
}
SIMGPU_API cuDeviceGetAttribute(int* out, int attribute, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetAttribute);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return attribute_of(device, attribute, *out);
}
SIMGPU_API cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  SIMGPU_ENTER(cuDeviceComputeCapability);
  if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  attribute_of(device, 75, *major);
  return attribute_of(device, 76, *minor);
}
SIMGPU_API cuDeviceGetProperties(CUdevprop* out, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetProperties);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *out = {max_threads_per_block,
          {1024, 1024, 64},
          {2147483647, 65535, 65535},
          max_shared_per_block,
          65536,
          32,
          2147483647,
          registers_per_processor,
          1980000,
          512};
  return CUDA_SUCCESS;
}
SIMGPU_API cuDeviceGetExecAffinitySupport(int* out, int type, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetExecAffinitySupport);
  if (!out || type != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *out = 0;
  return CUDA_SUCCESS;
}
SIMGPU_API cuDeviceGetPCIBusId(char* out, int length, CUdevice device) {
  SIMGPU_ENTER(cuDeviceGetPCIBusId);
  if (!out || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto& record = record_of(device);
  std::snprintf(out, static_cast<std::size_t>(length), "%04X:%02X:%02X.0", record.pci_domain, record.pci_bus,
                record.pci_device);
  return CUDA_SUCCESS;
}
SIMGPU_API cuDeviceGetByPCIBusId(CUdevice* out, const char* id) {
  SIMGPU_ENTER(cuDeviceGetByPCIBusId);
  if (!out || !id) return CUDA_ERROR_INVALID_VALUE;
  // With or without a domain and a function. NOLINTBEGIN(cert-err34-c): text in another form names no card.
  unsigned domain = 0, bus = 0, slot = 0;
  if (std::sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (std::sscanf(id, "%x:%x", &bus, &slot) != 2) return CUDA_ERROR_INVALID_VALUE;
  }
  // NOLINTEND(cert-err34-c)
  for (int i = 0; known_device(i); ++i) {
    const auto& record = record_of(i);
    if (record.pci_domain != domain || record.pci_bus != bus || record.pci_device != slot) continue;
    *out = i;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}
