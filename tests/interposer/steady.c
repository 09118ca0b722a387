/* SPDX-License-Identifier: Apache-2.0 */
/* Frees and allocates memory in a loop, with a hundred allocations alive, and prints the nanoseconds of such a pair:
 * steady PAIRS SIZE. With the interposer, the process has a limit. */
#include "wire/limit.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern int cuInit(unsigned);
extern int cuDeviceGetUuid_v2(void*, int);
extern int cuDevicePrimaryCtxRetain(void**, int);
extern int cuCtxSetCurrent(void*);
extern int cuMemAlloc_v2(uint64_t*, size_t);
extern int cuMemFree_v2(uint64_t);
extern int sublet_cuda_adopt(struct sublet_limit_page*) __attribute__((weak));

enum { ALIVE = 100 };

int main(int count, char** words) {
  static struct sublet_limit_page page = {.size = sizeof page, .abi = SUBLET_LIMIT_ABI, .devices = 1};
  const long pairs = count == 3 ? atol(words[1]) : 0;
  const size_t size = count == 3 ? (size_t)atol(words[2]) : 0;
  void* context = NULL;
  page.device[0].limit = page.device[0].credit = (uint64_t)1 << 40;
  if (cuInit(0) != 0 || cuDeviceGetUuid_v2(page.device[0].uuid, 0) != 0) return 1;
  if (sublet_cuda_adopt != NULL && sublet_cuda_adopt(&page) != 0) return 1;
  if (cuDevicePrimaryCtxRetain(&context, 0) != 0 || cuCtxSetCurrent(context) != 0) return 1;
  uint64_t held[ALIVE];
  for (int i = 0; i < ALIVE; ++i)
    if (cuMemAlloc_v2(&held[i], size) != 0) return 1;
  struct timespec before, after;
  int wrong = 0;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  for (long i = 0; i < pairs; ++i) {
    uint64_t* one = &held[i % ALIVE];
    wrong |= cuMemFree_v2(*one) | cuMemAlloc_v2(one, size);
  }
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  if (wrong != 0 || pairs == 0) return 1;
  printf("%f\n", ((double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec)) /
                     (double)pairs);
  return 0;
}
