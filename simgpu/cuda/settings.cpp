// SPDX-License-Identifier: Apache-2.0
// The smaller properties of a context (limits, flags, caches, identity), and peers.
#include <algorithm>
#include <map>

#include "context.h"
#include "memory.h"

using namespace simgpu;

namespace {

const std::map<int, std::size_t>& default_limits() {
  static const auto* all = new std::map<int, std::size_t>{{CU_LIMIT_STACK_SIZE, 1024},
                                                          {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
                                                          {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20},
                                                          {CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2},
                                                          {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048},
                                                          {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64},
                                                          {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0}};
  return *all;
}

CUresult api_version_of(CUcontext handle, unsigned* out) {
  const Lock lock(driver_mutex());
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = handle ? known_context(handle) : top_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *out = context->api_version;
  return CUDA_SUCCESS;
}

CUresult device_of(CUdevice* out, CUcontext handle) {
  const Lock lock(driver_mutex());
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = handle ? known_context(handle) : top_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *out = context->ordinal;
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_API cuCtxGetDevice(CUdevice* out) {
  SIMGPU_ENTER(cuCtxGetDevice);
  return device_of(out, nullptr);
}
SIMGPU_API cuCtxGetDevice_v2(CUdevice* out, CUcontext handle) {
  SIMGPU_ENTER(cuCtxGetDevice_v2);
  return device_of(out, handle);
}
SIMGPU_API cuCtxGetApiVersion(CUcontext handle, unsigned* out) {
  SIMGPU_ENTER(cuCtxGetApiVersion);
  return api_version_of(handle, out);
}
SIMGPU_API cuCtxGetFlags(unsigned* out) {
  SIMGPU_ENTER(cuCtxGetFlags);
  SIMGPU_CONTEXT();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = context->flags;
  return CUDA_SUCCESS;
}
SIMGPU_API cuCtxSetFlags(unsigned flags) {
  SIMGPU_ENTER(cuCtxSetFlags);
  SIMGPU_CONTEXT();
  if ((flags & ~CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags | CU_CTX_MAP_HOST;
  return CUDA_SUCCESS;
}
SIMGPU_API cuCtxGetId(CUcontext handle, unsigned long long* out) {
  SIMGPU_ENTER(cuCtxGetId);
  const Lock lock(driver_mutex());
  const Context* context = handle ? known_context(handle) : top_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = context->id;
  return CUDA_SUCCESS;
}
SIMGPU_API cuCtxGetLimit(std::size_t* out, CUlimit limit) {
  SIMGPU_ENTER(cuCtxGetLimit);
  SIMGPU_CONTEXT();
  const auto fallback = default_limits().find(limit);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (fallback == default_limits().end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  const auto at = context->limits.find(limit);
  *out = at == context->limits.end() ? fallback->second : at->second;
  return CUDA_SUCCESS;
}
SIMGPU_API cuCtxSetLimit(CUlimit limit, std::size_t value) {
  SIMGPU_ENTER(cuCtxSetLimit);
  SIMGPU_CONTEXT();
  if (!default_limits().contains(limit)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > 128) return CUDA_ERROR_INVALID_VALUE;
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}
SIMGPU_API cuCtxGetCacheConfig(int* out) {
  SIMGPU_ENTER(cuCtxGetCacheConfig);
  SIMGPU_CONTEXT();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = context->cache_config;
  return CUDA_SUCCESS;
}
SIMGPU_API cuCtxSetCacheConfig(int value) {
  SIMGPU_ENTER(cuCtxSetCacheConfig);
  SIMGPU_CONTEXT();
  if (value < 0 || value > 3) return CUDA_ERROR_INVALID_VALUE;
  context->cache_config = value;
  return CUDA_SUCCESS;
}
SIMGPU_API cuCtxGetSharedMemConfig(int* out) {
  SIMGPU_ENTER(cuCtxGetSharedMemConfig);
  SIMGPU_CONTEXT();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = context->shared_config;
  return CUDA_SUCCESS;
}
SIMGPU_API cuCtxSetSharedMemConfig(int value) {
  SIMGPU_ENTER(cuCtxSetSharedMemConfig);
  SIMGPU_CONTEXT();
  if (value < 0 || value > 2) return CUDA_ERROR_INVALID_VALUE;
  context->shared_config = value;
  return CUDA_SUCCESS;
}
SIMGPU_API cuCtxResetPersistingL2Cache() {
  SIMGPU_ENTER(cuCtxResetPersistingL2Cache);
  SIMGPU_CONTEXT();
  return CUDA_SUCCESS;
}
SIMGPU_API cuCtxGetExecAffinity(CUexecAffinityParam*, int) {
  SIMGPU_ENTER(cuCtxGetExecAffinity);
  SIMGPU_CONTEXT();
  return CUDA_ERROR_NOT_SUPPORTED;
}

// ------------------------------------------------------------------------------------------- peers

SIMGPU_API cuDeviceCanAccessPeer(int* out, CUdevice device, CUdevice peer) {
  SIMGPU_ENTER(cuDeviceCanAccessPeer);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device) || !known_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *out = device != peer;
  return CUDA_SUCCESS;
}
SIMGPU_API cuDeviceGetP2PAttribute(int* out, int attribute, CUdevice from, CUdevice to) {
  SIMGPU_ENTER(cuDeviceGetP2PAttribute);
  constexpr int access_supported = 2;
  if (!out || attribute < 1 || attribute > 5) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(from) || !known_device(to) || from == to) return CUDA_ERROR_INVALID_DEVICE;
  *out = attribute == access_supported ? 1 : 0;
  return CUDA_SUCCESS;
}
SIMGPU_API cuCtxEnablePeerAccess(CUcontext peer_handle, unsigned flags) {
  SIMGPU_ENTER(cuCtxEnablePeerAccess);
  SIMGPU_CONTEXT();
  Context* peer = known_context(peer_handle);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!peer || !peer->alive || peer == context) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->device == context->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return context->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
SIMGPU_API cuCtxDisablePeerAccess(CUcontext peer_handle) {
  SIMGPU_ENTER(cuCtxDisablePeerAccess);
  SIMGPU_CONTEXT();
  Context* peer = known_context(peer_handle);
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  return context->peers.erase(peer) == 1 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

// ------------------------------------------------------------------------------------------- legacy IPC

// The same memory can be exported as on the driver; the sharing itself is not simulated.
SIMGPU_API cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  SIMGPU_ENTER(cuIpcGetMemHandle);
  SIMGPU_CONTEXT();
  const Range* range = driver().addresses.find(address);
  if (!out || !range || range->kind != RangeKind::device) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_SUPPORTED;
}
