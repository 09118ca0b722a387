/* SPDX-License-Identifier: Apache-2.0 */
/* Calls a function of the fake driver in a loop, in several threads at once, and prints the nanoseconds of a call: the
 * mean over all threads of the time from a thread's first call to its last. Built with LAUNCH, it launches kernels, and
 * has a limit; with SHARE, also a share that it never reaches, because the driver's kernels take no time. */
#include "wire/limit.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern int cuInit(unsigned);
extern int cuParamSetf(void*, int, float);
extern int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                          void**);
extern int sublet_cuda_adopt(struct sublet_limit_page*) __attribute__((weak));
extern int sublet_cuda_adopt_share(struct sublet_share_page*) __attribute__((weak));

/* -> 1 */
static int call(void) {
#ifdef LAUNCH
  return cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0;
#else
  return cuParamSetf(0, 0, 0.25f);
#endif
}

static long calls;
static pthread_barrier_t start;

static void* work(void* data) {
  struct timespec before, after;
  int sum = call(); /* the first call of a thread */
  pthread_barrier_wait(&start);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  for (long i = 0; i < calls; ++i) sum += call();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  *(double*)data = (double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec);
  return sum == (int)(calls + 1) ? data : NULL;
}

int main(int count, char** words) {
  const int threads = count > 2 ? atoi(words[2]) : 1;
  static struct sublet_limit_page page = {.size = sizeof page, .abi = SUBLET_LIMIT_ABI};
  calls = atol(words[1]) / threads;
#ifdef LAUNCH
#ifdef SHARE
  static struct sublet_share_page shared = {.size = sizeof shared, .abi = SUBLET_LIMIT_ABI, .devices = 1};
  page.devices = 1, page.device[0].uuid[0] = 1, page.device[0].share = 50;
#endif
  if (sublet_cuda_adopt != NULL && sublet_cuda_adopt(&page) != 0) return 1;
#ifdef SHARE
  if (sublet_cuda_adopt_share != NULL && sublet_cuda_adopt_share(&shared) != 0) return 1;
#endif
#else
  (void)page;
#endif
  if (threads < 1 || threads > 64 || cuInit(0) != 0) return 1;
  pthread_t ids[64];
  double spent[64], sum = 0;
  pthread_barrier_init(&start, NULL, (unsigned)threads);
  for (int i = 0; i < threads; ++i) pthread_create(&ids[i], NULL, work, &spent[i]);
  for (int i = 0; i < threads; ++i) {
    void* done = NULL;
    pthread_join(ids[i], &done);
    if (done == NULL) return 1;
    sum += spent[i];
  }
  printf("%f\n", sum / (double)(calls * threads));
  return 0;
}
