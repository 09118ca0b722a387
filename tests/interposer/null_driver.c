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

/* Events that are of no use, by EVENTS: 0: none can be made, 1: none can be recorded, 2: they never come, 3: they fail,
 * 4 to 6: their time is no number, below zero, too large. */
#ifdef EVENTS
int cuEventCreate(void** out, unsigned flags) { return *out = (void*)(uintptr_t)0x2000, EVENTS == 0 ? 1 : (int)flags; }
int cuEventRecord(void* event, void* stream) { return EVENTS == 1 || event == stream; }
int cuEventElapsedTime(float* out, void* start, void* end) {
  const float zero = 0 * (float)(start != end);
  *out = EVENTS == 4 ? zero / zero : EVENTS == 5 ? -1 : 1e30f;
  return EVENTS == 2 ? 600 : EVENTS == 3 ? 719 : 0;
}
#endif
