/* SPDX-License-Identifier: Apache-2.0 */
/* 32 threads begin with the driver at the same time. Prints how many of them found a function that is no hook. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

extern int cuInit(unsigned);
extern int cuLaunchKernel(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
extern int cuGetProcAddress_v2(const char*, void**, int, uint64_t, int*);

static pthread_barrier_t start;

static int is_hook(void* function) {
  Dl_info info;
  return function != NULL && dladdr(function, &info) && strstr(info.dli_fname, "libsublet-cuda.so") != NULL;
}

static void* work(void* data) {
  void* function = NULL;
  int status = 0, right = 1;
  pthread_barrier_wait(&start);
  right = right && is_hook(dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
  right = right && cuInit(0) == 0;
  right = right && cuGetProcAddress_v2("cuLaunchKernel", &function, 14000, 0, &status) == 0 && is_hook(function);
  right = right && cuLaunchKernel(1, 0, 0, 0, 0, 0, 0, 0, 0) == 1;
  return right ? data : NULL;
}

int main(void) {
  pthread_t ids[32];
  int wrong = 0;
  pthread_barrier_init(&start, NULL, 32);
  for (int i = 0; i < 32; ++i) pthread_create(&ids[i], NULL, work, ids);
  for (int i = 0; i < 32; ++i) {
    void* done = NULL;
    pthread_join(ids[i], &done);
    wrong += done == NULL;
  }
  printf("wrong %d\n", wrong);
  return 0;
}
