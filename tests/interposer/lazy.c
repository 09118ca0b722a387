/* SPDX-License-Identifier: Apache-2.0 */
/* A library with stubs of the driver, which load the driver at the first call of any of them, and with callers of these
 * stubs. Without a driver a stub returns its own error. */
#include <dlfcn.h>
#include <stdint.h>
#include <stddef.h>

#define STUB(name, list, ...)                                          \
  int name list {                                                      \
    static int(*next) list;                                            \
    if (next == NULL) next = (int(*) list)find(#name);                 \
    return next != NULL ? next(__VA_ARGS__) : 303; /* as stubs say */  \
  }

static void* find(const char* name) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return driver != NULL ? dlsym(driver, name) : NULL;
}

STUB(cuInit, (unsigned flags), flags)
STUB(cuParamSetf, (void* function, int offset, float value), function, offset, value)
STUB(cuMemAlloc_v2, (void* out, unsigned long size), out, size)
STUB(cuLaunchKernel,
     (uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h, uint64_t i), a, b,
     c, d, e, f, g, h, i)
STUB(cuGetProcAddress_v2, (const char* name, void** function, int version, uint64_t flags, int* status), name, function,
     version, flags, status)
/* Functions that the fake driver lacks: the stub tells so in its own way. */
STUB(cuMemFree_v2, (unsigned long address), address)
STUB(cuCtxSynchronize, (void), )

int launch_here(void) { return cuLaunchKernel(1, 2, 3, 4, 5, 6, 7, 8, 9); }
int init_here(unsigned flags) { return cuInit(flags); }
int param_here(void) { return cuParamSetf(NULL, 1, 2.5f); }
int free_here(void) { return cuMemFree_v2(1); }
int wait_here(void) { return cuCtxSynchronize(); }
int allocate_by_address(void) {
  int (*allocate)(void*, unsigned long) = NULL;
  int status = 0;
  const int result = cuGetProcAddress_v2("cuMemAlloc", (void**)&allocate, 12000, 0, &status);
  return result == 0 ? allocate(NULL, 7) : -result;
}
