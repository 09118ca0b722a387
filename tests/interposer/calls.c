/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the fake driver in several threads and in a child, and prints what the calls returned. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern int cuInit(unsigned);
extern int cuLaunchKernel(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
extern int cuParamSetf(void*, int, float);
extern int cuMemAlloc_v2(void*, unsigned long);

static void* work(void* data) {
  long wrong = 0;
  for (int i = 0; i < 1000; ++i) wrong += cuLaunchKernel(i, 2, 3, 4, 5, 6, 7, 8, 9) != i + 284;
  *(long*)data += wrong;
  return NULL;
}

int main(void) {
  printf("before %d %d\n", cuLaunchKernel(1, 2, 3, 4, 5, 6, 7, 8, 9), cuParamSetf(0, 1, 2.5f));
  printf("init %d\n", cuInit(0));
  printf("after %d %d %d\n", cuLaunchKernel(1, 2, 3, 4, 5, 6, 7, 8, 9), cuParamSetf(0, 1, 2.5f), cuMemAlloc_v2(0, 7));
  pthread_t threads[40];
  long wrong[40] = {0};
  for (int i = 0; i < 40; ++i) pthread_create(&threads[i], NULL, work, &wrong[i]);
  long sum = 0;
  for (int i = 0; i < 40; ++i) {
    pthread_join(threads[i], NULL);
    sum += wrong[i];
  }
  printf("wrong %ld\n", sum);
  fflush(stdout);
  if (fork() == 0) _exit(cuLaunchKernel(1, 0, 0, 0, 0, 0, 0, 0, 0));
  int status = 0;
  wait(&status);
  printf("child %d\n", WEXITSTATUS(status));
  return 0;
}
