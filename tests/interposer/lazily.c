/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the library of lazy.c as an interpreter opens a module, and calls the driver through it: lazily LIBRARY FIRST
 * [THREADS]. FIRST is the function that is called first. Or, linked with that library, calls it directly. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static const char* const functions[] = {"param_here", "launch_here", "free_here", "allocate_by_address", "init_here",
                                        "launch_here", "param_here",  "free_here", "wait_here", "allocate_by_address"};
static pthread_barrier_t start;
static void* library;

#ifdef LINKED
extern int cuInit(unsigned);
extern int cuMemAlloc_v2(void*, unsigned long);
#endif

static int call(const char* name) {
  int (*function)(unsigned) = (int (*)(unsigned))dlsym(library, name);
  return function != NULL ? function(0) : -9999;
}

static void* work(void* first) {
  pthread_barrier_wait(&start);
  return (void*)(long)call(first);
}

int main(int count, char** words) {
#ifdef LINKED
  printf("linked %d\n", cuMemAlloc_v2(NULL, 5));
  printf("init %d\n", cuInit(0));
#endif
  library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return 1;
  const int threads = count > 3 ? atoi(words[3]) : 0;
  pthread_t ids[64];
  pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
  for (int i = 0; i < threads; ++i) pthread_create(&ids[i], NULL, work, words[2]);
  if (threads > 0) pthread_barrier_wait(&start);
  printf("first %d\n", call(words[2]));
  for (int i = 0; i < threads; ++i) {
    void* result = NULL;
    pthread_join(ids[i], &result);
    printf("thread %ld\n", (long)result);
  }
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; ++i)
    printf("%s %d\n", functions[i], call(functions[i]));
  return 0;
}
