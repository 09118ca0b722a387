// SPDX-License-Identifier: Apache-2.0
#include "context.h"

#include <algorithm>

#include "memory.h"
#include "work.h"

using namespace simgpu;

namespace simgpu {
namespace {

constexpr unsigned stack_depth = 128;

// No destructor: this must work in other destructors and in threads that are ending.
struct Stack {
  Context* at[stack_depth];
  unsigned depth;
};
thread_local constinit Stack stack{};

// Takes the context's memory on the card and makes its streams.
CUresult activate(Context& context) {
  auto& d = driver();
  const std::uint64_t bytes = d.table->context_bytes(context.device);
  if (d.table->is_lost(context.device)) return CUDA_ERROR_UNKNOWN;
  if (!d.process->charge(context.device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  // Under the lock: all other calls in this process wait while a context is made.
  if (const std::uint64_t us = d.table->get(Setting::context_us)) sleep_until_ns(now_ns() + us * 1000);
  context.charged = bytes;
  context.error = 0;
  context.id = d.next_id++;
  context.legacy = make_stream(context, CU_STREAM_DEFAULT, 0);
  context.alive = true;
  d.process->add_contexts(context.device, 1);
  return CUDA_SUCCESS;
}

// Ends a context: waits for its work, then frees its memory. Memory by cuMemCreate belongs to the process and stays.
void deactivate(Lock& lock, Context& context) {
  wait_for_context(lock, context);
  auto& d = driver();
  context.alive = false;
  free_all_of(context);
  std::erase_if(d.streams, [&](const auto& entry) { return entry.second->context == &context; });
  std::erase_if(d.events, [&](const auto& entry) { return entry.second->context == &context; });
  forget_images_of(context);
  context.legacy.reset();
  context.per_thread.clear();
  context.streams.clear();
  context.peers.clear();
  context.limits.clear();
  d.process->add_contexts(context.device, -1);
  d.process->discharge(context.device, context.charged);
  context.charged = 0;
}

CUresult create(CUcontext* out, unsigned flags, CUdevice device, unsigned api_version) {
  const Lock lock(driver_mutex());
  if (!out || (flags & ~CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!known_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (stack.depth == stack_depth) return CUDA_ERROR_OUT_OF_MEMORY;
  auto made = std::make_unique<Context>();
  made->ordinal = device;
  made->device = driver().cards[static_cast<std::size_t>(device)];
  made->flags = flags | CU_CTX_MAP_HOST;
  made->api_version = api_version;
  if (const CUresult result = activate(*made); result != CUDA_SUCCESS) return result;
  *out = handle_of(made.get());
  stack.at[stack.depth++] = made.get();
  driver().created.push_back(std::move(made));
  return CUDA_SUCCESS;
}

CUresult destroy(CUcontext handle) {
  Lock lock(driver_mutex());
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  Context* context = known_context(handle);
  if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  deactivate(lock, *context);
  // The context leaves this thread's stack. Other threads keep the context and find it destroyed.
  if (stack.depth != 0 && stack.at[stack.depth - 1] == context) --stack.depth;
  return CUDA_SUCCESS;
}

Context* primary_of(CUdevice device) {
  return known_device(device) ? driver().primary[static_cast<std::size_t>(device)].get() : nullptr;
}

CUresult release_primary(CUdevice device) {
  Lock lock(driver_mutex());
  Context* context = primary_of(device);
  if (!context) return CUDA_ERROR_INVALID_DEVICE;
  if (context->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context->retained == 0) deactivate(lock, *context);
  return CUDA_SUCCESS;
}

// Frees everything and leaves the context inactive until it is retained anew. Earlier retains still need their
// releases.
CUresult reset_primary(CUdevice device) {
  Lock lock(driver_mutex());
  Context* context = primary_of(device);
  if (!context) return CUDA_ERROR_INVALID_DEVICE;
  if (!context->alive) return CUDA_SUCCESS;
  deactivate(lock, *context);
  context->retained = 0;
  context->flags = CU_CTX_MAP_HOST;
  return CUDA_SUCCESS;
}

CUresult set_primary_flags(CUdevice device, unsigned flags) {
  const Lock lock(driver_mutex());
  Context* context = primary_of(device);
  if (!context) return CUDA_ERROR_INVALID_DEVICE;
  if ((flags & ~CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags | CU_CTX_MAP_HOST;
  return CUDA_SUCCESS;
}

}  // namespace

Context* top_context() { return stack.depth == 0 ? nullptr : stack.at[stack.depth - 1]; }

CUresult current_context(Context*& context) {
  context = top_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (context->error == 0 && driver().table->is_lost(context->device)) context->error = CUDA_ERROR_UNKNOWN;
  return static_cast<CUresult>(context->error.load());
}

Context* known_context(CUcontext handle) {
  auto* wanted = reinterpret_cast<Context*>(handle);
  for (const auto* contexts : {&driver().primary, &driver().created})
    for (const auto& context : *contexts)
      if (context.get() == wanted) return wanted;
  return nullptr;
}

bool known_device(CUdevice device) { return device >= 0 && device < static_cast<CUdevice>(driver().cards.size()); }

void prepare_card(int ordinal) {
  auto& d = driver();
  const auto index = static_cast<std::size_t>(ordinal);
  auto context = std::make_unique<Context>();
  context->ordinal = ordinal;
  context->device = d.cards[index];
  context->primary = true;
  context->flags = CU_CTX_MAP_HOST;
  context->api_version = 3020;
  d.primary[index] = std::move(context);
  prepare_pool(ordinal);
}

}  // namespace simgpu

// ------------------------------------------------------------------------------------------- created
// contexts

SIMGPU_API cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) {
  SIMGPU_ENTER(cuCtxCreate_v2);
  return create(out, flags, device, 3020);
}
SIMGPU_API cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam* affinity, int affinities, unsigned flags,
                          CUdevice device) {
  SIMGPU_ENTER(cuCtxCreate_v3);
  // Only MPS can give a part of a card's processors, and MPS is not simulated.
  if (affinities != 0 || affinity) return CUDA_ERROR_NOT_SUPPORTED;
  return create(out, flags, device, 11040);
}
SIMGPU_API cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* params, unsigned flags, CUdevice device) {
  SIMGPU_ENTER(cuCtxCreate_v4);
  if (params && (params->numExecAffinityParams != 0 || params->cigParams)) return CUDA_ERROR_NOT_SUPPORTED;
  return create(out, flags, device, 12050);
}
SIMGPU_API cuCtxDestroy_v2(CUcontext handle) {
  SIMGPU_ENTER(cuCtxDestroy_v2);
  return destroy(handle);
}
SIMGPU_API cuCtxDestroy(CUcontext handle) {
  SIMGPU_ENTER(cuCtxDestroy);
  return destroy(handle);
}
SIMGPU_API cuCtxDetach(CUcontext handle) {
  SIMGPU_ENTER(cuCtxDetach);
  return destroy(handle);
}

// ------------------------------------------------------------------------------------------- primary
// contexts

SIMGPU_API cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  SIMGPU_ENTER(cuDevicePrimaryCtxRetain);
  const Lock lock(driver_mutex());
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Context* context = primary_of(device);
  if (!context) return CUDA_ERROR_INVALID_DEVICE;
  if (!context->alive)
    if (const CUresult result = activate(*context); result != CUDA_SUCCESS) return result;
  ++context->retained;
  *out = handle_of(context);
  return CUDA_SUCCESS;
}
SIMGPU_API cuDevicePrimaryCtxRelease(CUdevice device) {
  SIMGPU_ENTER(cuDevicePrimaryCtxRelease);
  return release_primary(device);
}
SIMGPU_API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  SIMGPU_ENTER(cuDevicePrimaryCtxRelease_v2);
  return release_primary(device);
}
SIMGPU_API cuDevicePrimaryCtxReset(CUdevice device) {
  SIMGPU_ENTER(cuDevicePrimaryCtxReset);
  return reset_primary(device);
}
SIMGPU_API cuDevicePrimaryCtxReset_v2(CUdevice device) {
  SIMGPU_ENTER(cuDevicePrimaryCtxReset_v2);
  return reset_primary(device);
}
SIMGPU_API cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  SIMGPU_ENTER(cuDevicePrimaryCtxSetFlags);
  return set_primary_flags(device, flags);
}
SIMGPU_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  SIMGPU_ENTER(cuDevicePrimaryCtxSetFlags_v2);
  return set_primary_flags(device, flags);
}
SIMGPU_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  SIMGPU_ENTER(cuDevicePrimaryCtxGetState);
  const Lock lock(driver_mutex());
  const Context* context = primary_of(device);
  if (!context) return CUDA_ERROR_INVALID_DEVICE;
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags & ~CU_CTX_MAP_HOST;
  *active = context->alive ? 1 : 0;
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------- the thread's
// stack

namespace {

CUresult push(CUcontext handle) {
  const Lock lock(driver_mutex());
  Context* context = known_context(handle);
  if (!context || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.depth == stack_depth) return CUDA_ERROR_OUT_OF_MEMORY;
  stack.at[stack.depth++] = context;
  return CUDA_SUCCESS;
}

CUresult pop(CUcontext* out) {
  const Lock lock(driver_mutex());
  if (stack.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  Context* context = stack.at[--stack.depth];
  if (out) *out = handle_of(context);
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_API cuCtxPushCurrent_v2(CUcontext handle) {
  SIMGPU_ENTER(cuCtxPushCurrent_v2);
  return push(handle);
}
SIMGPU_API cuCtxPushCurrent(CUcontext handle) {
  SIMGPU_ENTER(cuCtxPushCurrent);
  return push(handle);
}
SIMGPU_API cuCtxPopCurrent_v2(CUcontext* out) {
  SIMGPU_ENTER(cuCtxPopCurrent_v2);
  return pop(out);
}
SIMGPU_API cuCtxPopCurrent(CUcontext* out) {
  SIMGPU_ENTER(cuCtxPopCurrent);
  return pop(out);
}
SIMGPU_API cuCtxSetCurrent(CUcontext handle) {
  SIMGPU_ENTER(cuCtxSetCurrent);
  const Lock lock(driver_mutex());
  if (!handle) {
    if (stack.depth != 0) --stack.depth;
    return CUDA_SUCCESS;
  }
  Context* context = known_context(handle);
  if (!context || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.depth == 0) stack.depth = 1;
  stack.at[stack.depth - 1] = context;
  return CUDA_SUCCESS;
}
SIMGPU_API cuCtxGetCurrent(CUcontext* out) {
  SIMGPU_ENTER(cuCtxGetCurrent);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = handle_of(top_context());
  return CUDA_SUCCESS;
}
