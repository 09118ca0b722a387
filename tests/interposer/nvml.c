/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the total, free and used bytes of the first device, as both functions of NVML tell them. Linked with NVML, or
 * without LINKED by dlopen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct memory {
  unsigned long long total, free, used;
};
struct memory_v2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

#ifdef LINKED
extern int nvmlInit_v2(void);
extern int nvmlDeviceGetHandleByIndex_v2(unsigned, void**);
extern int nvmlDeviceGetMemoryInfo(void*, struct memory*);
extern int nvmlDeviceGetMemoryInfo_v2(void*, struct memory_v2*);
#else
static int (*nvmlInit_v2)(void);
static int (*nvmlDeviceGetHandleByIndex_v2)(unsigned, void**);
static int (*nvmlDeviceGetMemoryInfo)(void*, struct memory*);
static int (*nvmlDeviceGetMemoryInfo_v2)(void*, struct memory_v2*);

static int load(void) {
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (nvml == NULL) return 0;
  *(void**)&nvmlInit_v2 = dlsym(nvml, "nvmlInit_v2");
  *(void**)&nvmlDeviceGetHandleByIndex_v2 = dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
  *(void**)&nvmlDeviceGetMemoryInfo = dlsym(nvml, "nvmlDeviceGetMemoryInfo");
  *(void**)&nvmlDeviceGetMemoryInfo_v2 = dlsym(nvml, "nvmlDeviceGetMemoryInfo_v2");
  return dlsym(nvml, "nvmlNoSuchFunction") == NULL;
}
#endif

int main(void) {
  void* device = NULL;
  struct memory first = {0};
  struct memory_v2 second = {.version = sizeof(struct memory_v2) | 2 << 24};
#ifndef LINKED
  const int is_absent = dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo") == NULL && dlerror() != NULL;
  if (!is_absent || !load()) return 2;
#endif
  if (nvmlInit_v2() != 0 || nvmlDeviceGetHandleByIndex_v2(0, &device) != 0) return 3;
  if (nvmlDeviceGetMemoryInfo(device, &first) != 0 || nvmlDeviceGetMemoryInfo_v2(device, &second) != 0) return 4;
  printf("%llu %llu %llu %llu %llu %llu %llu\n", first.total, first.free, first.used, second.total, second.free,
         second.used, second.reserved);
  return 0;
}
