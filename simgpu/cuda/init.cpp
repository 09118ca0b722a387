// SPDX-License-Identifier: Apache-2.0
// Calls that are allowed before any other: start, versions, names of errors, and functions by name and version.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "driver.h"
#include "lookup.h"

using namespace simgpu;

namespace {

struct ErrorText {
  int code;
  const char *name, *text;
};

// The names are the interface's. The texts have the same meaning as the driver's; programs print them but do not read
// them.
const ErrorText error_texts[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {5, "CUDA_ERROR_PROFILER_DISABLED", "profiler disabled"},
    {6, "CUDA_ERROR_PROFILER_NOT_INITIALIZED", "profiler not initialized"},
    {7, "CUDA_ERROR_PROFILER_ALREADY_STARTED", "profiler already started"},
    {8, "CUDA_ERROR_PROFILER_ALREADY_STOPPED", "profiler already stopped"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "a stub library was loaded"},
    {36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "call requires a newer driver"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "device busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {102, "CUDA_ERROR_DEVICE_NOT_LICENSED", "device not licensed"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "context already current"},
    {205, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {206, "CUDA_ERROR_UNMAP_FAILED", "unmapping of buffer object failed"},
    {207, "CUDA_ERROR_ARRAY_IS_MAPPED", "array is mapped"},
    {208, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {210, "CUDA_ERROR_ALREADY_ACQUIRED", "resource already acquired"},
    {211, "CUDA_ERROR_NOT_MAPPED", "resource not mapped"},
    {212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "resource not mapped as array"},
    {213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER", "resource not mapped as pointer"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "limit is not supported on this architecture"},
    {216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "exclusive-thread device already in use by a different thread"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "invalid graphics context"},
    {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error detected"},
    {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "PTX of an unsupported version"},
    {223, "CUDA_ERROR_JIT_COMPILATION_DISABLED", "PTX JIT compilation was disabled"},
    {224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "execution affinity not supported"},
    {225, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", "synchronization on the device not supported"},
    {226, "CUDA_ERROR_CONTAINED", "contained error"},
    {300, "CUDA_ERROR_INVALID_SOURCE", "device kernel image is invalid"},
    {301, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "shared object symbol not found"},
    {303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "shared object initialization failed"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {402, "CUDA_ERROR_LOSSY_QUERY", "attempted introspection would be semantically lossy"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "launch uses incompatible texturing mode"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "cannot set while device is active in this process"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {711, "CUDA_ERROR_TOO_MANY_PEERS", "peer mapping resources exhausted"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "operation not supported on global/shared address space"},
    {718, "CUDA_ERROR_INVALID_PC", "invalid program counter"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {721, "CUDA_ERROR_TENSOR_MEMORY_LEAK", "tensor memory not completely freed"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "display driver and CUDA driver do not fit each other"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility not supported on this hardware"},
    {805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "MPS client failed to connect"},
    {806, "CUDA_ERROR_MPS_RPC_FAILURE", "MPS call failed"},
    {807, "CUDA_ERROR_MPS_SERVER_NOT_READY", "MPS server is not ready"},
    {808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "MPS has no room for another client"},
    {809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "MPS has no room for another connection"},
    {810, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "MPS client was terminated"},
    {811, "CUDA_ERROR_CDP_NOT_SUPPORTED", "dynamic parallelism not supported"},
    {812, "CUDA_ERROR_CDP_VERSION_MISMATCH", "versions of dynamic parallelism do not fit each other"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to end a thread-local capture from another thread"},
    {909, "CUDA_ERROR_TIMEOUT", "wait operation timed out"},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph update was not performed"},
    {911, "CUDA_ERROR_EXTERNAL_DEVICE", "an error occurred in a device outside of CUDA"},
    {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "invalid cluster size"},
    {913, "CUDA_ERROR_FUNCTION_NOT_LOADED", "function is not loaded"},
    {914, "CUDA_ERROR_INVALID_RESOURCE_TYPE", "invalid resource type"},
    {915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "invalid resource configuration"},
    {916, "CUDA_ERROR_KEY_ROTATION", "key rotation"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorText* text_of(int code) {
  const auto* at = std::find_if(std::begin(error_texts), std::end(error_texts),
                                [&](const ErrorText& error) { return error.code == code; });
  return at == std::end(error_texts) ? nullptr : at;
}

int driver_version() {
  const Table* table = table_or_null();
  return table ? static_cast<int>(table->get(Setting::driver_version)) : 13000;
}

// Finds the newest function of that name that both the caller and the driver know, in the form that the caller asks
// for.
CUresult look_up(const char* symbol, void** out, int version, std::uint64_t flags, int* status) {
  constexpr std::uint64_t known =
      std::uint64_t{CU_GET_PROC_ADDRESS_LEGACY_STREAM} | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (!symbol || !out || *symbol == 0 || (flags & ~known) != 0 || flags == known) return CUDA_ERROR_INVALID_VALUE;
  const std::string_view name = symbol;
  const int limit = std::min(version, driver_version());
  const bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const Lookup *best = nullptr, *own = nullptr;
  bool any = false;
  for (const Lookup* at = lookups; at != lookups + lookup_count; ++at) {
    if (name != at->name || at->version > driver_version()) continue;
    any = true;
    if (at->version > limit) continue;
    const Lookup*& kind = at->per_thread ? own : best;
    if (!kind || at->generation > kind->generation) kind = at;
  }
  // The per-thread form of the newest function, if there is one.
  if (per_thread && own && (!best || own->generation >= best->generation)) best = own;
  *out = best ? reinterpret_cast<void*>(best->function) : nullptr;
  if (status)
    *status = best  ? CU_GET_PROC_ADDRESS_SUCCESS
              : any ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return best ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

bool is_in_library(const void* code, std::string_view name) {
  Dl_info info{};
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) return false;
  return std::string_view(info.dli_fname).find(name) != std::string_view::npos;
}

}  // namespace

#define SIMGPU_ENTER_EARLY(name)                        \
  static constinit ::simgpu::CallSite call_site{#name}; \
  if (const CUresult refused = call_site.enter_early(); refused != CUDA_SUCCESS) return refused

SIMGPU_API cuInit(unsigned flags) {
  SIMGPU_ENTER_EARLY(cuInit);
  return initialise(flags);
}

SIMGPU_API cuDriverGetVersion(int* version) {
  SIMGPU_ENTER_EARLY(cuDriverGetVersion);
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = driver_version();
  return CUDA_SUCCESS;
}

SIMGPU_API cuGetErrorName(CUresult error, const char** out) {
  SIMGPU_ENTER_EARLY(cuGetErrorName);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* text = text_of(error);
  *out = text ? text->name : nullptr;
  return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_API cuGetErrorString(CUresult error, const char** out) {
  SIMGPU_ENTER_EARLY(cuGetErrorString);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* text = text_of(error);
  *out = text ? text->text : nullptr;
  return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_API cuGetProcAddress(const char* symbol, void** out, int version, std::uint64_t flags) {
  SIMGPU_ENTER_EARLY(cuGetProcAddress);
  return look_up(symbol, out, version, flags, nullptr);
}

SIMGPU_API cuGetProcAddress_v2(const char* symbol, void** out, int version, std::uint64_t flags, int* status) {
  SIMGPU_ENTER_EARLY(cuGetProcAddress_v2);
  return look_up(symbol, out, version, flags, status);
}

// A runtime checks with these tables that the driver is the vendor's. The simulated driver is not, and refuses. NVRTC
// asks for a table too, and works without it.
SIMGPU_API cuGetExportTable(const void** out, const CUuuid*) {
  const bool is_compiler = is_in_library(__builtin_return_address(0), "libnvrtc");
  SIMGPU_ENTER_EARLY(cuGetExportTable);
  static std::atomic<bool> said{false};
  if (!is_compiler && !said.exchange(true))
    std::fprintf(stderr,
                 "simgpu: this program uses the CUDA runtime, which works on the vendor's driver only; "
                 "the simulated driver serves programs of the driver API\n");
  if (out) *out = nullptr;
  return CUDA_ERROR_NOT_SUPPORTED;
}

SIMGPU_API cuProfilerStart() {
  SIMGPU_ENTER(cuProfilerStart);
  return CUDA_SUCCESS;
}
SIMGPU_API cuProfilerStop() {
  SIMGPU_ENTER(cuProfilerStop);
  return CUDA_SUCCESS;
}
