// SPDX-License-Identifier: Apache-2.0
// Contexts, and the calling thread's stack of contexts. The caller holds the driver's lock.
#pragma once

#include "driver.h"

namespace simgpu {

// Makes the objects that a visible card always has: its primary context (not yet active) and its standard pool.
void prepare_card(int ordinal);

// Returns the thread's current context if calls may use it. Else INVALID_CONTEXT, CONTEXT_IS_DESTROYED, or the
// context's sticky error.
CUresult current_context(Context*& context);
// Returns the thread's current context in any state, or null.
Context* top_context();
// Finds the context that a caller names by its handle.
Context* known_context(CUcontext handle);

inline CUcontext handle_of(Context* context) { return reinterpret_cast<CUcontext>(context); }

bool known_device(CUdevice device);

}  // namespace simgpu

// Locks the driver and finds the current context: `lock` and `context` in the rest of the function.
#define SIMGPU_CONTEXT()                         \
  ::simgpu::Lock lock(::simgpu::driver_mutex()); \
  ::simgpu::Context* context = nullptr;          \
  if (const CUresult unusable = ::simgpu::current_context(context); unusable != CUDA_SUCCESS) return unusable
