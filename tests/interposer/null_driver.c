/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that does nothing: every allocation succeeds at once, at addresses that come round again. */
#include <stddef.h>
#include <stdint.h>

int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuCtxGetCurrent(void** out) { return *out = (void*)(uintptr_t)0x1000, 0; }
int cuCtxSetCurrent(void* context) { return context == NULL; }
int cuCtxGetDevice(int* out) { return *out = 0; }
int cuDevicePrimaryCtxRetain(void** out, int device) { return *out = (void*)(uintptr_t)0x1000, device; }
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = i == 0;
  return device;
}

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** words, void** more) {
  (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)words, (void)more;
  return function != NULL;
}

static uint64_t next;
int cuMemAlloc_v2(uint64_t* out, size_t size) {
  *out = ((uint64_t)1 << 40) + (next++ & 255) * ((uint64_t)64 << 20);
  return size == 0;
}
int cuMemFree_v2(uint64_t address) { return address == 0; }

/* Arrays are handles that come and go. */
static uint64_t arrays;
static int make(void** out, const void* wanted) { return *out = (void*)(uintptr_t)(++arrays << 12), wanted == NULL; }
int cuArrayCreate_v2(void** out, const void* wanted) { return make(out, wanted); }
int cuArray3DCreate_v2(void** out, const void* wanted) { return make(out, wanted); }
int cuMipmappedArrayCreate(void** out, const void* wanted, unsigned levels) {
  return levels == 0 ? 1 : make(out, wanted);
}
int cuArrayDestroy(void* array) { return array == NULL; }
int cuMipmappedArrayDestroy(void* array) { return array == NULL; }
int cuCtxDestroy_v2(void* context) { return context == NULL; }
