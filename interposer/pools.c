/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of memory that is allocated in the order of a stream. A pool is charged by what it reserves of the card, which
 * the driver tells. */
#include "limit.h"

struct location {
  int32_t type, id;
};
struct pool_properties {
  int32_t type, handle_types;
  struct location location;
};

typedef int (*allocate_function)(uint64_t*, size_t, void*);
typedef int (*from_pool_function)(uint64_t*, size_t, void*, void*);
typedef int (*create_function)(void**, const struct pool_properties*);
typedef int (*destroy_function)(void*);
typedef int (*free_function)(uint64_t, void*);
typedef int (*capture_function)(void*, int*);

EXPORTED int cuMemAllocAsync(uint64_t* out, size_t size, void* stream);
EXPORTED int cuMemAllocAsync_ptsz(uint64_t* out, size_t size, void* stream);
EXPORTED int cuMemAllocFromPoolAsync(uint64_t* out, size_t size, void* pool, void* stream);
EXPORTED int cuMemAllocFromPoolAsync_ptsz(uint64_t* out, size_t size, void* pool, void* stream);
EXPORTED int cuMemPoolCreate(void** out, const struct pool_properties* wanted);
EXPORTED int cuMemPoolDestroy(void* pool);

enum { LOCATION_IS_DEVICE = 1 };
enum { RESERVED_NOW = 5, USED_NOW = 7 };
/* Drivers let a pool grow by this much at once. */
#define STEP ((uint64_t)32 << 20)

/* By handle. a: 0: it has ended, else its account + 2. b: the bytes that are charged for it, in blocks; the lower bits
 * count changes, so that a thread which looked before a change of another thread looks again. */
static struct sublet_table pools;
#define BYTES_OF(word) ((word) & ~(BLOCK - 1))

/* 0: the driver does not tell. */
static int ask_pool(uint64_t pool, int attribute, uint64_t* bytes) {
  int (*ask)(void*, int, void*) = (int (*)(void*, int, void*))sublet_real(HOOK_cuMemPoolGetAttribute);
  return ask != NULL && ask((void*)pool, attribute, bytes) == CUDA_SUCCESS;
}

/* Charges what the pool reserves now. `claim` bytes are charged for it already. */
static void look_at(struct sublet_slot* slot, uint64_t pool, uint64_t claim) {
  const int account = (int)__atomic_load_n(&slot->a, __ATOMIC_ACQUIRE) - 2;
  uint64_t was = __atomic_load_n(&slot->b, __ATOMIC_ACQUIRE), now, reserved = 0;
  do {
    if (account < 0 || !ask_pool(pool, RESERVED_NOW, &reserved)) {
      sublet_discharge(account, claim);
      return;
    }
    now = sublet_round(reserved, BLOCK) | ((was + 1) & (BLOCK - 1));
  } while (!__atomic_compare_exchange_n(&slot->b, &was, now, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
  const uint64_t more = BYTES_OF(now), charged = BYTES_OF(was) + claim;
  if (more > charged) sublet_add(account, more - charged);
  else sublet_discharge(account, charged - more);
}

static struct sublet_slot* add_pool(uint64_t pool, int account) {
  struct sublet_slot* slot = sublet_place(&pools, pool);
  uint64_t ended = 0;
  if (slot != NULL)
    __atomic_compare_exchange_n(&slot->a, &ended, (uint64_t)(account + 2), 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
  return slot;
}

static void trim_one(struct sublet_slot* slot, uint64_t pool, void* account) {
  int (*trim)(void*, size_t) = (int (*)(void*, size_t))sublet_real(HOOK_cuMemPoolTrimTo);
  if (__atomic_load_n(&slot->a, __ATOMIC_ACQUIRE) != (uint64_t)(*(int*)account + 2)) return;
  if (trim != NULL) (void)trim((void*)pool, 0);
  look_at(slot, pool, 0);
}

static void look_at_one(struct sublet_slot* slot, uint64_t pool, void* account) {
  if (__atomic_load_n(&slot->a, __ATOMIC_ACQUIRE) == (uint64_t)(*(int*)account + 2)) look_at(slot, pool, 0);
}

void sublet_trim_pools(int account) { sublet_each(&pools, trim_one, &account); }
void sublet_look_at_pools(int account) { sublet_each(&pools, look_at_one, &account); }

/* --- allocations */

struct request {
  uint64_t* out;
  uint64_t size;
  void* pool; /* NULL: the current pool of the stream's device */
  void* stream;
  int by_thread; /* 1: the default stream is that of the thread */
};

static int call(const struct request* request, void* next) {
  if (request->pool != NULL)
    return ((from_pool_function)next)(request->out, request->size, request->pool, request->stream);
  return ((allocate_function)next)(request->out, request->size, request->stream);
}

/* While a stream is captured, an allocation becomes a part of a graph, and takes memory when the graph runs. */
static int is_captured(const struct request* request) {
  const int hook = request->by_thread ? HOOK_cuStreamIsCapturing_ptsz : HOOK_cuStreamIsCapturing;
  const capture_function ask = (capture_function)sublet_real(hook);
  int status = 0;
  return ask != NULL && (ask(request->stream, &status) != CUDA_SUCCESS || status != 0);
}

/* The pool that the driver will take, and its place in the table; NULL: it has no limit. */
static struct sublet_slot* find_pool(const struct request* request, uint64_t* pool) {
  int (*current)(void**, int) = (int (*)(void**, int))sublet_real(HOOK_cuDeviceGetMemPool);
  const struct sublet_where where = sublet_of_stream(request->stream);
  void* found = request->pool;
  if (where.account < 0) return NULL;
  if (found == NULL && (current == NULL || current(&found, where.device) != CUDA_SUCCESS)) return NULL;
  *pool = (uint64_t)found;
  struct sublet_slot* slot = add_pool(*pool, where.account);
  return slot != NULL && __atomic_load_n(&slot->a, __ATOMIC_ACQUIRE) >= 2 ? slot : NULL;
}

/* The bytes that the pool will take of the card for an allocation of this size, if it has no gaps. */
static uint64_t growth_of(uint64_t pool, uint64_t size) {
  uint64_t reserved = 0, used = 0;
  if (!ask_pool(pool, RESERVED_NOW, &reserved) || !ask_pool(pool, USED_NOW, &used)) return sublet_round(size, STEP);
  const uint64_t wanted = used + sublet_round(size, 512);
  return wanted > reserved ? sublet_round(wanted - reserved, STEP) : 0;
}

/* The pool took more than was charged, because no gap in it was large enough. */
static int take_back(const struct request* request) {
  const int hook = request->by_thread ? HOOK_cuMemFreeAsync_ptsz : HOOK_cuMemFreeAsync;
  const free_function free = (free_function)sublet_real(hook);
  if (free == NULL || free(*request->out, request->stream) != CUDA_SUCCESS) return CUDA_SUCCESS;
  *request->out = 0;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static int allocate(const struct request* request, void* next) {
  uint64_t pool = 0;
  if (request->size == 0 || request->out == NULL || is_captured(request)) return call(request, next);
  struct sublet_slot* slot = find_pool(request, &pool);
  if (slot == NULL) return call(request, next);
  int account = (int)__atomic_load_n(&slot->a, __ATOMIC_ACQUIRE) - 2;
  /* The gaps of the pool may be too small for it. If the credit does not reach for that, the driver is asked still:
   * a program may not be refused what its pool has. If the driver then takes more, it is over for a moment, and this is
   * not tried again until it is not. */
  uint64_t claim = sublet_round(request->size, STEP);
  if (!sublet_try_charge(account, claim) &&
      !(sublet_ask_for_credit(account, sublet_charged(account) + claim) && sublet_try_charge(account, claim))) {
    sublet_trim_pools(account); /* this pool too, so that it may have to grow */
    if (!sublet_try_charge(account, claim)) {
      if (!sublet_is_over(account)) claim = growth_of(pool, request->size);
      if (!sublet_charge(account, claim)) return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  const uint64_t before = BYTES_OF(__atomic_load_n(&slot->b, __ATOMIC_ACQUIRE));
  int result = call(request, next);
  look_at(slot, pool, claim);
  const uint64_t after = BYTES_OF(__atomic_load_n(&slot->b, __ATOMIC_ACQUIRE));
  if (result != CUDA_SUCCESS || after <= before + claim || !sublet_is_over(account))
    return sublet_noted(result, COUNT_ALLOCATED, request->size);
  result = take_back(request);
  trim_one(slot, pool, &account);
  return sublet_noted(result, COUNT_ALLOCATED, request->size);
}

int cuMemAllocAsync(uint64_t* out, size_t size, void* stream) {
  SUBLET_NEXT(cuMemAllocAsync);
  const struct request request = {out, size, NULL, stream, 0};
  return is_hooked ? allocate(&request, found_next) : SUBLET_CALL(allocate_function)(out, size, stream);
}

int cuMemAllocAsync_ptsz(uint64_t* out, size_t size, void* stream) {
  SUBLET_NEXT(cuMemAllocAsync_ptsz);
  const struct request request = {out, size, NULL, stream, 1};
  return is_hooked ? allocate(&request, found_next) : SUBLET_CALL(allocate_function)(out, size, stream);
}

int cuMemAllocFromPoolAsync(uint64_t* out, size_t size, void* pool, void* stream) {
  SUBLET_NEXT(cuMemAllocFromPoolAsync);
  const struct request request = {out, size, pool, stream, 0};
  if (!is_hooked || pool == NULL) return SUBLET_CALL(from_pool_function)(out, size, pool, stream);
  return allocate(&request, found_next);
}

int cuMemAllocFromPoolAsync_ptsz(uint64_t* out, size_t size, void* pool, void* stream) {
  SUBLET_NEXT(cuMemAllocFromPoolAsync_ptsz);
  const struct request request = {out, size, pool, stream, 1};
  if (!is_hooked || pool == NULL) return SUBLET_CALL(from_pool_function)(out, size, pool, stream);
  return allocate(&request, found_next);
}

/* --- pools that a program makes */

int cuMemPoolCreate(void** out, const struct pool_properties* wanted) {
  SUBLET_NEXT(cuMemPoolCreate);
  const int result = SUBLET_CALL(create_function)(out, wanted);
  if (!is_hooked || result != CUDA_SUCCESS || wanted == NULL) return result;
  const int on_device = wanted->location.type == LOCATION_IS_DEVICE;
  (void)add_pool((uint64_t)*out, on_device ? sublet_account_of(wanted->location.id) : NO_ACCOUNT);
  return result;
}

/* Allocations of a pool may outlive it. Nobody can tell then what they hold, so that all of the pool stays charged. */
int cuMemPoolDestroy(void* pool) {
  SUBLET_NEXT(cuMemPoolDestroy);
  struct sublet_slot* slot = is_hooked ? sublet_find(&pools, (uint64_t)pool) : NULL;
  uint64_t used = 0;
  const int is_known = slot != NULL && __atomic_load_n(&slot->a, __ATOMIC_ACQUIRE) != 0;
  const int is_used = is_known && (!ask_pool((uint64_t)pool, USED_NOW, &used) || used != 0);
  const int result = SUBLET_CALL(destroy_function)(pool);
  if (result != CUDA_SUCCESS || !is_known) return result;
  const int account = (int)__atomic_exchange_n(&slot->a, 0, __ATOMIC_ACQ_REL) - 2;
  const uint64_t charged = BYTES_OF(__atomic_exchange_n(&slot->b, 0, __ATOMIC_ACQ_REL));
  if (!is_used) sublet_discharge(account, charged);
  return result;
}
