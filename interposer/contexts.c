/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, which take memory for themselves, and whose end frees the memory that was allocated in them. */
#include "share.h"

typedef int (*create_function)(void**, unsigned, int);
typedef int (*create_function_v3)(void**, void*, int, unsigned, int);
typedef int (*create_function_v4)(void**, void*, unsigned, int);
typedef int (*destroy_function)(void*);
typedef int (*retain_function)(void**, int);
typedef int (*device_function)(int);
typedef int (*green_function)(void**, void*, int, unsigned);
typedef int (*limit_function)(int, size_t);

EXPORTED int cuCtxCreate(void** out, unsigned flags, int device);
EXPORTED int cuCtxCreate_v2(void** out, unsigned flags, int device);
EXPORTED int cuCtxCreate_v3(void** out, void* affinity, int count, unsigned flags, int device);
EXPORTED int cuCtxCreate_v4(void** out, void* parameters, unsigned flags, int device);
EXPORTED int cuCtxDestroy(void* context);
EXPORTED int cuCtxDestroy_v2(void* context);
EXPORTED int cuCtxDetach(void* context);
EXPORTED int cuDevicePrimaryCtxRetain(void** out, int device);
EXPORTED int cuDevicePrimaryCtxRelease(int device);
EXPORTED int cuDevicePrimaryCtxRelease_v2(int device);
EXPORTED int cuDevicePrimaryCtxReset(int device);
EXPORTED int cuDevicePrimaryCtxReset_v2(int device);
EXPORTED int cuGreenCtxCreate(void** out, void* resources, int device, unsigned flags);
EXPORTED int cuCtxSetLimit(int limit, size_t value);

/* Known contexts. a: 0: it has ended, else its account + 2 (in the lowest byte) and its device; b: bytes that are
 * charged for it. */
static struct sublet_table contexts;
/* By device: its primary context, once it was retained. */
enum { DEVICES = 64 };
static void* primaries[DEVICES];

/* Notes a context that lives, with what was charged for it. 0: it is known, and its bytes are charged already. */
static int add_context(uint64_t context, const struct sublet_where* where, uint64_t charged) {
  struct sublet_slot* slot = sublet_place(&contexts, context);
  const uint64_t is = (uint64_t)where->device << 8 | (uint64_t)(where->account + 2);
  uint64_t ended = 0;
  if (slot == NULL || !__atomic_compare_exchange_n(&slot->a, &ended, is, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return 0;
  __atomic_fetch_add(&slot->b, charged, __ATOMIC_ACQ_REL);
  return 1;
}

static void end_context(uint64_t context) {
  struct sublet_slot* slot = sublet_find(&contexts, context);
  if (slot == NULL) return;
  sublet_end_memory(context);
  sublet_end_samples(context);
  const uint64_t was = __atomic_exchange_n(&slot->a, 0, __ATOMIC_ACQ_REL);
  const uint64_t bytes = __atomic_exchange_n(&slot->b, 0, __ATOMIC_ACQ_REL);
  if (was != 0) sublet_discharge((int)(was & 255) - 2, bytes);
}

/* A context that came by another way is charged when it is first seen. */
struct sublet_where sublet_here(void) {
  struct sublet_where where = {NO_ACCOUNT, -1, 0};
  int (*ask)(void**) = (int (*)(void**))sublet_real(HOOK_cuCtxGetCurrent);
  int (*ask_device)(int*) = (int (*)(int*))sublet_real(HOOK_cuCtxGetDevice);
  void* context = NULL;
  if (ask == NULL || ask_device == NULL || ask(&context) != CUDA_SUCCESS || context == NULL) return where;
  where.context = (uint64_t)context;
  struct sublet_slot* slot = sublet_find(&contexts, where.context);
  const uint64_t known = slot != NULL ? __atomic_load_n(&slot->a, __ATOMIC_ACQUIRE) : 0;
  if (known != 0) {
    where.account = (int)(known & 255) - 2;
    where.device = (int)(known >> 8);
    return where;
  }
  if (ask_device(&where.device) != CUDA_SUCCESS) return where;
  where.account = sublet_account_of(where.device);
  const uint64_t bytes = sublet_context_bytes(where.account);
  if (add_context(where.context, &where, bytes)) sublet_add(where.account, bytes);
  return where;
}

/* The first two handles stand for the default streams of the current context. */
struct sublet_where sublet_of_stream(void* stream) {
  int (*of_stream)(void*, void**) = (int (*)(void*, void**))sublet_real(HOOK_cuStreamGetCtx);
  int (*push)(void*) = (int (*)(void*))sublet_real(HOOK_cuCtxPushCurrent_v2);
  int (*pop)(void**) = (int (*)(void**))sublet_real(HOOK_cuCtxPopCurrent_v2);
  void* context = NULL;
  if ((uint64_t)stream <= 2 || of_stream == NULL || push == NULL || pop == NULL) return sublet_here();
  if (of_stream(stream, &context) != CUDA_SUCCESS || push(context) != CUDA_SUCCESS) return sublet_here();
  const struct sublet_where where = sublet_here();
  pop(&context);
  return where;
}

/* --- contexts that a program makes */

static int begin(struct sublet_claim* claim, int device) {
  claim->where = (struct sublet_where){sublet_account_of(device), device, 0};
  claim->bytes = sublet_context_bytes(claim->where.account);
  return sublet_charge(claim->where.account, claim->bytes);
}

static int end(const struct sublet_claim* claim, int result, void** out) {
  if (result != CUDA_SUCCESS || !add_context((uint64_t)*out, &claim->where, claim->bytes))
    sublet_discharge(claim->where.account, claim->bytes);
  return sublet_noted(result, NO_COUNT, 0);
}

int cuCtxCreate(void** out, unsigned flags, int device) {
  SUBLET_NEXT(cuCtxCreate);
  struct sublet_claim claim;
  if (!is_hooked) return SUBLET_CALL(create_function)(out, flags, device);
  if (!begin(&claim, device)) return CUDA_ERROR_OUT_OF_MEMORY;
  return end(&claim, SUBLET_CALL(create_function)(out, flags, device), out);
}

int cuCtxCreate_v2(void** out, unsigned flags, int device) {
  SUBLET_NEXT(cuCtxCreate_v2);
  struct sublet_claim claim;
  if (!is_hooked) return SUBLET_CALL(create_function)(out, flags, device);
  if (!begin(&claim, device)) return CUDA_ERROR_OUT_OF_MEMORY;
  return end(&claim, SUBLET_CALL(create_function)(out, flags, device), out);
}

int cuCtxCreate_v3(void** out, void* affinity, int count, unsigned flags, int device) {
  SUBLET_NEXT(cuCtxCreate_v3);
  struct sublet_claim claim;
  if (!is_hooked) return SUBLET_CALL(create_function_v3)(out, affinity, count, flags, device);
  if (!begin(&claim, device)) return CUDA_ERROR_OUT_OF_MEMORY;
  return end(&claim, SUBLET_CALL(create_function_v3)(out, affinity, count, flags, device), out);
}

int cuCtxCreate_v4(void** out, void* parameters, unsigned flags, int device) {
  SUBLET_NEXT(cuCtxCreate_v4);
  struct sublet_claim claim;
  if (!is_hooked) return SUBLET_CALL(create_function_v4)(out, parameters, flags, device);
  if (!begin(&claim, device)) return CUDA_ERROR_OUT_OF_MEMORY;
  return end(&claim, SUBLET_CALL(create_function_v4)(out, parameters, flags, device), out);
}

static int destroy(int result, void* context) {
  if (result == CUDA_SUCCESS) end_context((uint64_t)context);
  return result;
}

int cuCtxDestroy(void* context) {
  SUBLET_NEXT(cuCtxDestroy);
  const int result = SUBLET_CALL(destroy_function)(context);
  return is_hooked ? destroy(result, context) : result;
}

int cuCtxDestroy_v2(void* context) {
  SUBLET_NEXT(cuCtxDestroy_v2);
  const int result = SUBLET_CALL(destroy_function)(context);
  return is_hooked ? destroy(result, context) : result;
}

/* The context ends with its last user; then the driver does not know it any more. */
int cuCtxDetach(void* context) {
  SUBLET_NEXT(cuCtxDetach);
  const int result = SUBLET_CALL(destroy_function)(context);
  int (*ask)(void*, uint64_t*) = (int (*)(void*, uint64_t*))sublet_real(HOOK_cuCtxGetId);
  uint64_t id = 0;
  if (!is_hooked || result != CUDA_SUCCESS || (ask != NULL && ask(context, &id) == CUDA_SUCCESS)) return result;
  return destroy(result, context);
}

/* --- primary contexts, which live as long as they are retained */

static int is_active(int device) {
  int (*ask)(int, unsigned*, int*) = (int (*)(int, unsigned*, int*))sublet_real(HOOK_cuDevicePrimaryCtxGetState);
  unsigned flags = 0;
  int active = 0;
  return ask != NULL && ask(device, &flags, &active) == CUDA_SUCCESS && active;
}

static int begin_primary(struct sublet_claim* claim, int device) {
  if (!is_active(device)) return begin(claim, device);
  *claim = (struct sublet_claim){{sublet_account_of(device), device, 0}, 0};
  return 1;
}

int cuDevicePrimaryCtxRetain(void** out, int device) {
  SUBLET_NEXT(cuDevicePrimaryCtxRetain);
  struct sublet_claim claim;
  if (!is_hooked) return SUBLET_CALL(retain_function)(out, device);
  if (!begin_primary(&claim, device)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int result = SUBLET_CALL(retain_function)(out, device);
  if (result == CUDA_SUCCESS && device >= 0 && device < DEVICES)
    __atomic_store_n(&primaries[device], *out, __ATOMIC_RELEASE);
  const uint64_t missing = claim.bytes == 0 ? sublet_context_bytes(claim.where.account) : 0;
  if (missing == 0) return end(&claim, result, out);
  /* Active already: by way of another function, if it is not known here. */
  if (result == CUDA_SUCCESS && add_context((uint64_t)*out, &claim.where, missing))
    sublet_add(claim.where.account, missing);
  return result;
}

static int release(int result, int device) {
  if (result != CUDA_SUCCESS || device < 0 || device >= DEVICES || is_active(device)) return result;
  void* context = __atomic_load_n(&primaries[device], __ATOMIC_ACQUIRE);
  if (context != NULL) end_context((uint64_t)context);
  return result;
}

int cuDevicePrimaryCtxRelease(int device) {
  SUBLET_NEXT(cuDevicePrimaryCtxRelease);
  const int result = SUBLET_CALL(device_function)(device);
  return is_hooked ? release(result, device) : result;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  SUBLET_NEXT(cuDevicePrimaryCtxRelease_v2);
  const int result = SUBLET_CALL(device_function)(device);
  return is_hooked ? release(result, device) : result;
}

int cuDevicePrimaryCtxReset(int device) {
  SUBLET_NEXT(cuDevicePrimaryCtxReset);
  const int result = SUBLET_CALL(device_function)(device);
  return is_hooked ? release(result, device) : result;
}

int cuDevicePrimaryCtxReset_v2(int device) {
  SUBLET_NEXT(cuDevicePrimaryCtxReset_v2);
  const int result = SUBLET_CALL(device_function)(device);
  return is_hooked ? release(result, device) : result;
}

/* A part of the primary context, which becomes active with it. Its memory is charged when it is first seen. */
int cuGreenCtxCreate(void** out, void* resources, int device, unsigned flags) {
  SUBLET_NEXT(cuGreenCtxCreate);
  struct sublet_claim claim;
  if (!is_hooked) return SUBLET_CALL(green_function)(out, resources, device, flags);
  if (!begin_primary(&claim, device)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int result = SUBLET_CALL(green_function)(out, resources, device, flags);
  sublet_discharge(claim.where.account, claim.bytes);
  return result;
}

/* --- memory that a context takes when one of its limits is raised */

enum { STACK = 0, PRINTF = 1, HEAP = 2 };
enum { PROCESSORS = 16, THREADS_OF_PROCESSOR = 39 };

static uint64_t bytes_of_limit(int limit, uint64_t value) {
  if (limit == PRINTF || limit == HEAP) return sublet_round(value, BLOCK);
  if (limit != STACK) return 0;
  int (*current)(int*) = (int (*)(int*))sublet_real(HOOK_cuCtxGetDevice);
  int (*ask)(int*, int, int) = (int (*)(int*, int, int))sublet_real(HOOK_cuDeviceGetAttribute);
  int device = 0, processors = 0, threads = 0;
  if (current == NULL || ask == NULL || current(&device) != CUDA_SUCCESS) return 0;
  if (ask(&processors, PROCESSORS, device) != CUDA_SUCCESS) return 0;
  if (ask(&threads, THREADS_OF_PROCESSOR, device) != CUDA_SUCCESS) return 0;
  if (value >= (uint64_t)1 << 24) return MOST_BYTES; /* no thread of a card has that much */
  return sublet_round(value * (uint64_t)processors * (uint64_t)threads, BLOCK);
}

int cuCtxSetLimit(int limit, size_t value) {
  SUBLET_NEXT(cuCtxSetLimit);
  if (!is_hooked) return SUBLET_CALL(limit_function)(limit, value);
  int (*ask)(size_t*, int) = (int (*)(size_t*, int))sublet_real(HOOK_cuCtxGetLimit);
  const struct sublet_where where = sublet_here();
  size_t before = 0, after = 0;
  if (where.account < 0 || ask == NULL || ask(&before, limit) != CUDA_SUCCESS)
    return SUBLET_CALL(limit_function)(limit, value);
  const uint64_t had = bytes_of_limit(limit, before), wanted = bytes_of_limit(limit, value);
  const uint64_t more = wanted > had ? wanted - had : 0;
  if (!sublet_charge(where.account, more)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int result = SUBLET_CALL(limit_function)(limit, value);
  struct sublet_slot* slot = sublet_find(&contexts, where.context);
  if (result != CUDA_SUCCESS || slot == NULL || ask(&after, limit) != CUDA_SUCCESS || after < value) {
    sublet_discharge(where.account, more);
    return result;
  }
  if (more != 0) {
    __atomic_fetch_add(&slot->b, more, __ATOMIC_ACQ_REL);
    return result;
  }
  /* A smaller limit gives back what a larger one took, and never what the context took at its beginning. */
  const uint64_t least = sublet_context_bytes(where.account), less = had - wanted;
  uint64_t held = __atomic_load_n(&slot->b, __ATOMIC_ACQUIRE), kept;
  do kept = held < least ? held : held - less < least || less > held ? least : held - less;
  while (!__atomic_compare_exchange_n(&slot->b, &held, kept, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
  sublet_discharge(where.account, held - kept);
  return result;
}
