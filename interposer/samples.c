/* SPDX-License-Identifier: Apache-2.0 */
/* Measured launches. Each context has some pairs of events of its own. Events are never waited for: a later launch asks
 * whether they have come. No call of this file changes the result of the program's call: one that fails only means that
 * a launch is not measured. */
#include "share.h"
#include "kernel.h"

#include <sys/mman.h>

enum { NOT_READY = 600, RELAXED = 2, SAMPLES = 50 };
enum { FREE = 0, TAKEN = 1, IN_FLIGHT = 2 };
/* Samples that have not come are asked for again after this time, so that the questions cost little. */
#define LOOK_AGAIN_NS ((uint64_t)200000)

struct pool {
  uint64_t id;        /* of the context: another context may have its handle later; 0: the driver tells none */
  uint64_t next_look; /* time */
  uint32_t in_flight; /* samples */
  uint32_t reserved;
  struct sublet_sample sample[SAMPLES];
};
/* By handle of a context. a: its pool, which stays when the context ends. */
static struct sublet_table pools;

_Static_assert(sizeof(struct pool) <= 4096, "a pool is a page");

/* A thread that is capturing a stream may not ask for events, unless it says that it knows what it does. -> the mode to
 * go back to; -1: none */
static int exchange_mode(int mode) {
  int (*exchange)(int*) = (int (*)(int*))sublet_real(HOOK_cuThreadExchangeStreamCaptureMode);
  return mode >= 0 && exchange != NULL && exchange(&mode) == CUDA_SUCCESS ? mode : -1;
}

static void clear(struct pool* pool) {
  for (int i = 0; i < SAMPLES; ++i) {
    pool->sample[i].start = pool->sample[i].end = NULL;
    __atomic_store_n(&pool->sample[i].state, FREE, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&pool->in_flight, 0, __ATOMIC_RELEASE);
}

static uint64_t id_of(uint64_t context) {
  int (*ask)(void*, uint64_t*) = (int (*)(void*, uint64_t*))sublet_real(HOOK_cuCtxGetId);
  uint64_t id = 0;
  return ask != NULL && ask((void*)context, &id) == CUDA_SUCCESS ? id : 0;
}

/* Events of a context that has ended in an unknown way are forgotten. */
static struct pool* check_id(struct pool* pool, uint64_t context) {
  const uint64_t id = id_of(context);
  if (__atomic_load_n(&pool->id, __ATOMIC_ACQUIRE) != id && __atomic_exchange_n(&pool->id, id, __ATOMIC_ACQ_REL) != id)
    clear(pool);
  return pool;
}

static struct pool* find_pool(uint64_t context) {
  struct sublet_slot* slot = sublet_find(&pools, context);
  return slot != NULL ? (struct pool*)__atomic_load_n(&slot->a, __ATOMIC_ACQUIRE) : NULL;
}

static struct pool* make_pool(uint64_t context) {
  struct pool* there = find_pool(context);
  if (there != NULL) return check_id(there, context);
  struct sublet_slot* slot = sublet_place(&pools, context);
  if (slot == NULL) return NULL;
  const long mapped = sublet_kernel(SYS_mmap, 0, sizeof(struct pool), PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped < 0 && mapped > -4096) return NULL;
  uint64_t none = 0;
  ((struct pool*)mapped)->id = id_of(context);
  if (!__atomic_compare_exchange_n(&slot->a, &none, (uint64_t)mapped, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    sublet_kernel(SYS_munmap, mapped, sizeof(struct pool), 0, 0, 0, 0);
  return (struct pool*)__atomic_load_n(&slot->a, __ATOMIC_ACQUIRE);
}

void sublet_end_samples(uint64_t context) {
  struct pool* pool = find_pool(context);
  if (pool != NULL) clear(pool);
}

/* --- around a launch */

static struct sublet_sample* take_free(struct pool* pool) {
  for (int i = 0; i < SAMPLES; ++i) {
    uint32_t is_free = FREE;
    uint32_t* state = &pool->sample[i].state;
    if (__atomic_load_n(state, __ATOMIC_RELAXED) == FREE &&
        __atomic_compare_exchange_n(state, &is_free, TAKEN, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      return &pool->sample[i];
  }
  return NULL;
}

int sublet_has_no_sample(uint64_t context) {
  struct pool* pool = find_pool(context);
  for (int i = 0; pool != NULL && i < SAMPLES; ++i)
    if (__atomic_load_n(&pool->sample[i].state, __ATOMIC_RELAXED) == FREE) return 0;
  return pool != NULL;
}

static int has_events(struct sublet_sample* sample) {
  int (*create)(void**, unsigned) = (int (*)(void**, unsigned))sublet_real(HOOK_cuEventCreate);
  if (create == NULL) return 0;
  if (sample->start == NULL && create(&sample->start, 0) != CUDA_SUCCESS) sample->start = NULL;
  if (sample->end == NULL && create(&sample->end, 0) != CUDA_SUCCESS) sample->end = NULL;
  return sample->start != NULL && sample->end != NULL;
}

static int record(void* event, const struct sublet_stream* stream) {
  int (*next)(void*, void*) =
      (int (*)(void*, void*))sublet_real(stream->by_thread ? HOOK_cuEventRecord_ptsz : HOOK_cuEventRecord);
  return event != NULL && next != NULL && next(event, stream->handle) == CUDA_SUCCESS;
}

static int is_idle(const struct sublet_stream* stream) {
  int (*ask)(void*) = (int (*)(void*))sublet_real(stream->by_thread ? HOOK_cuStreamQuery_ptsz : HOOK_cuStreamQuery);
  return ask != NULL && ask(stream->handle) == CUDA_SUCCESS;
}

void sublet_leave_sample(struct sublet_sample* sample) { __atomic_store_n(&sample->state, FREE, __ATOMIC_RELEASE); }

struct sublet_sample* sublet_begin_sample(uint64_t context, const struct sublet_stream* stream) {
  struct pool* pool = make_pool(context);
  struct sublet_sample* sample = pool != NULL ? take_free(pool) : NULL;
  if (sample == NULL) return NULL;
  const int mode = exchange_mode(RELAXED);
  sample->is_idle = (uint64_t)is_idle(stream);
  const int is_begun = has_events(sample) && record(sample->start, stream);
  exchange_mode(mode);
  sample->gap = sublet_clock(); /* the time of the event, until the launch is done */
  if (is_begun) return sample;
  sublet_leave_sample(sample);
  return NULL;
}

/* The first event comes at once on a stream that has nothing to do. The launch comes later, at a moment of its call
 * that nobody tells. */
int sublet_end_sample(struct sublet_sample* sample, uint64_t context, const struct sublet_stream* stream) {
  struct pool* pool = find_pool(context);
  sample->gap = sublet_clock() - sample->gap;
  const int mode = exchange_mode(RELAXED);
  const int is_done = pool != NULL && record(sample->end, stream);
  exchange_mode(mode);
  if (!is_done) {
    sublet_leave_sample(sample);
    return 0;
  }
  __atomic_fetch_add(&pool->in_flight, 1, __ATOMIC_ACQ_REL);
  __atomic_store_n(&sample->state, IN_FLIGHT, __ATOMIC_RELEASE);
  return 1;
}

/* --- after it */

/* -> nanoseconds; -1: not yet, -2: never */
static int64_t measured(const struct sublet_sample* sample) {
  int (*ask)(float*, void*, void*) = (int (*)(float*, void*, void*))sublet_real(HOOK_cuEventElapsedTime);
  if (ask == NULL) ask = (int (*)(float*, void*, void*))sublet_real(HOOK_cuEventElapsedTime_v2);
  float milliseconds = 0;
  const int result = ask != NULL ? ask(&milliseconds, sample->start, sample->end) : NOT_READY + 1;
  if (result == NOT_READY) return -1;
  if (result != CUDA_SUCCESS || !(milliseconds >= 0 && milliseconds < 1e6f)) return -2;
  return (int64_t)((double)milliseconds * 1e6);
}

/* -> 0: it has not come yet */
static int look_at(struct pool* pool, struct sublet_sample* sample) {
  uint32_t is_there = IN_FLIGHT;
  if (!__atomic_compare_exchange_n(&sample->state, &is_there, TAKEN, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 1;
  const int64_t nanoseconds = measured(sample);
  if (nanoseconds >= 0) sublet_learn(sample, (uint64_t)nanoseconds);
  if (nanoseconds == -2) sublet_lose(sample);
  if (nanoseconds != -1) __atomic_fetch_sub(&pool->in_flight, 1, __ATOMIC_ACQ_REL);
  __atomic_store_n(&sample->state, nanoseconds == -1 ? IN_FLIGHT : FREE, __ATOMIC_RELEASE);
  return nanoseconds != -1;
}

void sublet_look_at_samples(uint64_t context, uint64_t now, const struct sublet_slot* wanted) {
  struct pool* pool = find_pool(context);
  if (pool == NULL || __atomic_load_n(&pool->in_flight, __ATOMIC_ACQUIRE) == 0) return;
  if (wanted == NULL && now < __atomic_load_n(&pool->next_look, __ATOMIC_RELAXED)) return;
  __atomic_store_n(&pool->next_look, now + LOOK_AGAIN_NS, __ATOMIC_RELAXED);
  const int mode = exchange_mode(RELAXED);
  int have_all_come = 1;
  check_id(pool, context);
  for (int i = 0; i < SAMPLES; ++i) {
    struct sublet_sample* sample = &pool->sample[i];
    if (__atomic_load_n(&sample->state, __ATOMIC_ACQUIRE) != IN_FLIGHT) continue;
    if (wanted == NULL || sample->place == wanted) have_all_come = look_at(pool, sample) && have_all_come;
  }
  exchange_mode(mode);
  if (have_all_come) __atomic_store_n(&pool->next_look, 0, __ATOMIC_RELAXED);
}
