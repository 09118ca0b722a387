/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that allocate and free at random near the limit: crowd THREADS [pools | recall | daemon]. With `daemon`, the
 * limit is that of the daemon that SUBLET_CREDIT names. Prints how many results
 * were wrong, what was charged at most and at the end, how many calls were refused, and the bytes that it allocated. */
#include "wire/limit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int cuInit(unsigned);
extern int cuDeviceGetUuid_v2(void*, int);
extern int cuDevicePrimaryCtxRetain(void**, int);
extern int cuCtxSetCurrent(void*);
extern int cuMemAlloc_v2(uint64_t*, size_t);
extern int cuMemFree_v2(uint64_t);
extern int cuMemCreate(uint64_t*, size_t, const void*, uint64_t);
extern int cuMemRelease(uint64_t);
extern int cuMemAllocAsync(uint64_t*, size_t, void*);
extern int cuMemFreeAsync(uint64_t, void*);
extern int cuCtxSynchronize(void);
extern int cuMemGetInfo_v2(size_t*, size_t*);
extern int sublet_cuda_adopt(struct sublet_limit_page*) __attribute__((weak));
extern int sublet_cuda_use(struct sublet_use_page*) __attribute__((weak));

enum { ROUNDS = 3000, HELD = 24 };
static const uint64_t mib = 1 << 20;
static void* context;
static pthread_barrier_t start;
static long wrong, failed;
static unsigned kinds = 2; /* of memory */
static int working;        /* threads */
static int is_awaited;     /* 1: the threads go on until credit was taken back once */
/* Bytes that the driver has surely given: counted after it gave them, and no longer before they are freed. */
static uint64_t given;
static uint64_t allocated; /* bytes, from the beginning */
static struct sublet_limit_page page = {.size = sizeof page, .abi = SUBLET_LIMIT_ABI, .devices = 1};

struct memory {
  int kind; /* 0: none, 1: linear, 2: physical, 3: of a pool */
  uint64_t name, size;
};

static void drop(struct memory* memory) {
  int result = 0;
  if (memory->kind != 0) __atomic_fetch_sub(&given, memory->size, __ATOMIC_SEQ_CST);
  if (memory->kind == 1) result = cuMemFree_v2(memory->name);
  if (memory->kind == 2) result = cuMemRelease(memory->name);
  if (memory->kind == 3) result = cuMemFreeAsync(memory->name, NULL);
  if (result != 0) __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
  memory->kind = 0;
}

static void* work(void* data) {
  unsigned seed = (unsigned)(uintptr_t)data + 60;
  struct memory held[HELD] = {{0}};
  const int properties[8] = {1, 0, 1, 0};
  cuCtxSetCurrent(context);
  pthread_barrier_wait(&start);
  for (int i = 0; i < ROUNDS || __atomic_load_n(&is_awaited, __ATOMIC_ACQUIRE); ++i) {
    struct memory* memory = &held[rand_r(&seed) % HELD];
    drop(memory);
    int kind = 1 + rand_r(&seed) % kinds, result;
    uint64_t size = rand_r(&seed) % 3 == 0 ? rand_r(&seed) % mib + 1 : (rand_r(&seed) % 20 + 1) * 2 * mib;
    if (kind == 2) size = (size + 2 * mib - 1) / (2 * mib) * (2 * mib);
    if (kind == 1) result = cuMemAlloc_v2(&memory->name, size);
    else if (kind == 3) result = cuMemAllocAsync(&memory->name, size, NULL);
    else result = cuMemCreate(&memory->name, size, properties, 0);
    if (result == 0) {
      memory->kind = kind;
      memory->size = size;
      __atomic_fetch_add(&given, size, __ATOMIC_SEQ_CST);
      __atomic_fetch_add(&allocated, size, __ATOMIC_RELAXED);
    } else __atomic_fetch_add(result == 2 ? &failed : &wrong, 1, __ATOMIC_RELAXED);
  }
  for (int i = 0; i < HELD; ++i) drop(&held[i]);
  __atomic_fetch_sub(&working, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

/* Takes credit back while the threads allocate, as the writer of a page does. -> how often that succeeded */
static long recall(void) {
  uint64_t* credit = &page.device[0].credit;
  const uint64_t all = *credit;
  long done = 0;
  while (__atomic_load_n(&working, __ATOMIC_SEQ_CST) > 0) {
    struct sublet_use_page use = {.size = sizeof use};
    sublet_cuda_use(&use);
    const uint64_t lower = use.device[0].charged + 2 * mib < all ? use.device[0].charged + 2 * mib : all;
    __atomic_store_n(credit, lower, __ATOMIC_SEQ_CST);
    sublet_cuda_use(&use);
    if (use.device[0].charged <= lower) {
      ++done;
      __atomic_store_n(&is_awaited, 0, __ATOMIC_RELEASE);
      for (int i = 0; i < 200; ++i)
        if (__atomic_load_n(&given, __ATOMIC_SEQ_CST) + page.device[0].context > lower)
          __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    }
    __atomic_store_n(credit, all, __ATOMIC_SEQ_CST);
  }
  return done;
}

int main(int count, char** words) {
  const int threads = count > 1 ? atoi(words[1]) : 1;
  const int recalls = count > 2 && strcmp(words[2], "recall") == 0;
  const int of_daemon = count > 2 && strcmp(words[2], "daemon") == 0;
  if (count > 2 && !recalls && !of_daemon) kinds = 3;
  working = threads, is_awaited = recalls;
  struct sublet_limit_device* device = &page.device[0];
  device->limit = device->credit = 512 * mib;
  device->context = 100 * mib;
  /* The driver tells the number of the card only after cuInit, and no context is there yet. */
  if (cuInit(0) != 0 || cuDeviceGetUuid_v2(device->uuid, 0) != 0) return 1;
  if (!of_daemon && sublet_cuda_adopt(&page) != 0) return 1;
  if (cuDevicePrimaryCtxRetain(&context, 0) != 0) return 1;
  pthread_t ids[64];
  pthread_barrier_init(&start, NULL, (unsigned)threads);
  for (int i = 0; i < threads; ++i) pthread_create(&ids[i], NULL, work, (void*)(uintptr_t)i);
  const long recalled = recalls ? recall() : 0;
  for (int i = 0; i < threads; ++i) pthread_join(ids[i], NULL);
  /* Looks at the pools, which have given everything back by then. */
  size_t free_bytes = 0, total = 0;
  if (cuCtxSetCurrent(context) != 0 || cuCtxSynchronize() != 0 || cuMemGetInfo_v2(&free_bytes, &total) != 0) return 1;
  struct sublet_use_page use = {.size = sizeof use};
  if (sublet_cuda_use(&use) != 0) return 1;
  printf("recalled %ld\nallocated %llu\nfailed %ld\n", recalled, (unsigned long long)allocated, failed);
  printf("wrong %ld\nmost %llu\nleft %llu\nrefused %llu\n", wrong, (unsigned long long)use.device[0].most,
         (unsigned long long)use.device[0].charged, (unsigned long long)use.device[0].refused);
  return 0;
}
