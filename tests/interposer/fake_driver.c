/* SPDX-License-Identifier: Apache-2.0 */
/* A driver with a handful of functions, for what no simulated card shows: exports and answers that nobody knows, float
 * arguments and arguments on the stack. The test chooses by -D. */
#include <stdint.h>
#include <string.h>

int cuInit(unsigned flags) {
  (void)flags;
#ifdef REFUSES
  return 100;
#else
  return 0;
#endif
}

int cuDriverGetVersion(int* version) {
  *version = 14000;
  return 0;
}

/* Nine arguments, so that three are on the stack. */
int cuLaunchKernel(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h,
                   uint64_t i) {
  return (int)(a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i);
}

int cuParamSetf(void* function, int offset, float value) { return function == 0 ? offset + (int)(value * 4) : -1; }

int cuMemAlloc_v2(void* a, unsigned long b) {
  (void)a;
  return (int)b;
}

static int hidden(void* a, unsigned long b) { return cuMemAlloc_v2(a, b) + 1; }

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  (void)version;
  (void)flags;
  *status = 0;
  *function = strcmp(name, "cuLaunchKernel") == 0 ? (void*)cuLaunchKernel : 0;
  if (strcmp(name, "cuMemAlloc") == 0) *function = (void*)cuMemAlloc_v2;
#ifdef HIDDEN_ALLOCATION
  if (strcmp(name, "cuMemAlloc") == 0) *function = (void*)hidden;
#else
  (void)hidden;
#endif
  return *function != 0 ? 0 : 500;
}

#ifdef NEW_EXPORT
int NEW_EXPORT(void) { return 0; }
#endif
