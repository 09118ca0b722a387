/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 that passes every call on to the library at CORRUPT_DRIVER. After the first large allocation has been
 * filled, it flips one of its bits at CORRUPT_OFFSET: simgpu-load must find that. */
#include <dlfcn.h>
#include <stdlib.h>

typedef unsigned long long pointer;

#define FORWARDED(X)                                                                                                \
  X(cuInit)                                                                                                         \
  X(cuGetErrorName)                                                                                                 \
  X(cuGetErrorString)                                                                                               \
  X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) \
      X(cuCtxSetCurrent) X(cuMemGetInfo_v2) X(cuMemFree_v2) X(cuMemcpyDtoH_v2) X(cuMemsetD8_v2) X(cuMemcpyHtoD_v2)  \
          X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuCtxSynchronize) X(cuModuleLoadData) X(cuModuleUnload)         \
              X(cuModuleGetFunction) X(cuLaunchKernel)

#define FORWARD(name)                             \
  static void* real_##name __attribute__((used)); \
  __attribute__((naked)) void name(void) { __asm__("jmp *real_" #name "(%rip)"); }
FORWARDED(FORWARD)

static int (*allocate)(pointer*, size_t);
static int (*synchronize)(void*);
static pointer victim;
static int filled;

__attribute__((constructor)) static void load(void) {
  void* driver = dlopen(getenv("CORRUPT_DRIVER"), RTLD_NOW | RTLD_LOCAL);
#define FIND(name) real_##name = dlsym(driver, #name);
  FORWARDED(FIND)
  allocate = dlsym(driver, "cuMemAlloc_v2");
  synchronize = dlsym(driver, "cuStreamSynchronize");
}

int cuMemAlloc_v2(pointer* out, size_t size) {
  int result = allocate(out, size);
  if (size >= 1 << 20) victim = *out;
  return result;
}

/* The first wait for the stream after the allocation is the one for its fill. */
int cuStreamSynchronize(void* stream) {
  int result = synchronize(stream);
  if (victim && !filled) {
    pointer at = victim + strtoull(getenv("CORRUPT_OFFSET"), 0, 0);
    unsigned char byte;
    filled = 1;
    ((int (*)(void*, pointer, size_t))real_cuMemcpyDtoH_v2)(&byte, at, 1);
    ((int (*)(pointer, unsigned char, size_t))real_cuMemsetD8_v2)(at, byte ^ 1, 1);
    ((int (*)(void))real_cuCtxSynchronize)();
  }
  return result;
}
