/* SPDX-License-Identifier: Apache-2.0 */
/* The hooks that are written by hand, and what the stubs of hooks.S call. */
#include "limit.h"

typedef int (*init_function)(unsigned);
typedef int (*address_function)(const char*, void**, int, uint64_t);
typedef int (*address_function_v2)(const char*, void**, int, uint64_t, int*);

/* Each thread counts in one of these, in a cache line that few others write. */
enum { SHARDS = 32 };
static uint64_t counters[SHARDS][(HOOKS + 7) / 8 * 8] __attribute__((aligned(64)));
static uint32_t shards_given;
static uint32_t active; /* 1 after a cuInit that succeeded */
static int32_t driver_version;

/* The counters of this thread; NULL: none yet. Read by hooks.S. */
__attribute__((visibility("hidden"), tls_model("initial-exec"))) __thread uint64_t* sublet_shard;

void sublet_fill_report(struct sublet_interposer_report* report);
EXPORTED int cuInit(unsigned flags);
EXPORTED int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags);
EXPORTED int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status);
EXPORTED int cuGetProcAddress_v2_ptsz(const char* name, void** function, int version, uint64_t flags, int* status);
EXPORTED uint64_t sublet_cuda_calls(const char* name);
EXPORTED int sublet_cuda_report(struct sublet_interposer_report* report);

void sublet_count(int hook) {
  if (!__atomic_load_n(&active, __ATOMIC_ACQUIRE)) return;
  if (sublet_shard == NULL) sublet_shard = counters[__atomic_fetch_add(&shards_given, 1, __ATOMIC_RELAXED) % SHARDS];
  __atomic_fetch_add(&sublet_shard[hook], 1, __ATOMIC_RELAXED);
}

int sublet_shard_number(void) {
  const uint64_t* shard = sublet_shard;
  return shard == NULL ? -1 : (int)(((uintptr_t)shard - (uintptr_t)counters) / sizeof counters[0]);
}

_Static_assert(SHARDS == SUBLET_USE_SHARDS, "the shards of the use page are those of the threads");

static int absent(void) { return CUDA_ERROR_NOT_FOUND; }

/* A library may have stubs of the driver of its own, which load the driver at the first call. Our functions hide them,
 * so that a call without a driver goes on to the stub. The stub's own look-ups get our hooks. */
void* sublet_behind(uint64_t hook, const void* caller) {
  void* stub = sublet_stub((int)hook, caller);
  return stub != NULL ? stub : (void*)absent;
}

void* sublet_slow(uint64_t hook, const void* caller) {
  void* real = sublet_real((int)hook);
  /* A thread that has counters does not come here any more, so that every function has to have a value then. */
  sublet_count((int)hook);
  return real != NULL ? real : sublet_behind(hook, caller);
}

/* The driver's function for a hook that is written here, else the stub. Only a call of the driver counts. */
static void* go_on(int hook, const void* caller, int* is_real) {
  void* real = sublet_real(hook);
  *is_real = real != NULL;
  return real != NULL ? real : sublet_behind((uint64_t)hook, caller);
}

/* Asks for one function of each family as a program would, and checks that the answer is known. */
static void test_lookups(void) {
  static const char* const probes[] = {
#define PREFIX(text, size, needs_hook)
#define PROBE(name) #name,
#include "generated/families.inc"
#undef PREFIX
#undef PROBE
  };
  const address_function_v2 second = (address_function_v2)sublet_real(HOOK_cuGetProcAddress_v2);
  const address_function first = (address_function)sublet_real(HOOK_cuGetProcAddress);
  if (second == NULL && first == NULL) return;
  for (size_t i = 0; i < sizeof probes / sizeof probes[0]; ++i)
    for (uint64_t flags = 1; flags <= 2; ++flags) { /* the legacy stream, then that of each thread */
      void* function = NULL;
      int status = 0;
      const int result = second != NULL ? second(probes[i], &function, driver_version, flags, &status)
                                        : first(probes[i], &function, driver_version, flags);
      if (result == CUDA_SUCCESS && function != NULL && !sublet_is_known(function))
        sublet_note_uncovered(SUBLET_INTERPOSER_UNKNOWN_POINTER, probes[i]);
    }
}

/* No thread returns from cuInit before this is done. Threads that come at the same time each do it, to the same end. */
static void begin(void) {
  if (__atomic_load_n(&active, __ATOMIC_ACQUIRE)) return;
  int (*version)(int*) = (int (*)(int*))sublet_real(HOOK_cuDriverGetVersion);
  int said = 0;
  if (version != NULL && version(&said) == CUDA_SUCCESS) __atomic_store_n(&driver_version, said, __ATOMIC_RELAXED);
  for (int hook = 0; hook < HOOKS; ++hook)
    if (sublet_real(hook) == NULL) __atomic_store_n(&sublet_reals[hook], (void*)sublet_lacking, __ATOMIC_RELEASE);
  test_lookups();
  __atomic_store_n(&active, 1, __ATOMIC_RELEASE);
}

int sublet_enter(int hook, const void* caller, void** next) {
  int is_real = 0;
  *next = go_on(hook, caller, &is_real);
  sublet_count(hook);
  return is_real && (sublet_is_limited() || sublet_begin_late());
}

int cuInit(unsigned flags) {
  int is_real = 0;
  const init_function next = (init_function)go_on(HOOK_cuInit, __builtin_return_address(0), &is_real);
  const int result = next(flags);
  if (!is_real) return result;
  if (result == CUDA_SUCCESS) {
    begin();
    sublet_begin_limit();
  }
  sublet_count(HOOK_cuInit);
  return result;
}

/* The driver decides by name, version and flags which function it is. The hook of that function has the same
 * arguments. */
static int answer(int result, const char* name, void** function) {
  if (result != CUDA_SUCCESS || function == NULL || *function == NULL) return result;
  if (name != NULL && !sublet_is_known(*function) && sublet_needs_hook(name))
    sublet_note_uncovered(SUBLET_INTERPOSER_UNKNOWN_POINTER, name);
  *function = sublet_hooked(*function);
  return result;
}

int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  int is_real = 0;
  const address_function next =
      (address_function)go_on(HOOK_cuGetProcAddress, __builtin_return_address(0), &is_real);
  if (!is_real) return next(name, function, version, flags);
  sublet_count(HOOK_cuGetProcAddress);
  return answer(next(name, function, version, flags), name, function);
}

static int second(int hook, const char* name, void** function, int version, uint64_t flags, int* status,
                  const void* caller) {
  int is_real = 0;
  const address_function_v2 next = (address_function_v2)go_on(hook, caller, &is_real);
  if (!is_real) return next(name, function, version, flags, status);
  sublet_count(hook);
  return answer(next(name, function, version, flags, status), name, function);
}

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  return second(HOOK_cuGetProcAddress_v2, name, function, version, flags, status, __builtin_return_address(0));
}

int cuGetProcAddress_v2_ptsz(const char* name, void** function, int version, uint64_t flags, int* status) {
  return second(HOOK_cuGetProcAddress_v2_ptsz, name, function, version, flags, status, __builtin_return_address(0));
}

/* How often a function was called through its hook since cuInit succeeded; 0 for a name without a hook. */
uint64_t sublet_cuda_calls(const char* name) {
  const int hook = sublet_hook_of(name);
  uint64_t calls = 0;
  for (int shard = 0; hook >= 0 && shard < SHARDS; ++shard)
    calls += __atomic_load_n(&counters[shard][hook], __ATOMIC_RELAXED);
  return calls;
}

/* Fills the report. 0: done; -1: the structure is too small for this library. */
int sublet_cuda_report(struct sublet_interposer_report* report) {
  if (report->size < sizeof *report) return -1;
  *report = (struct sublet_interposer_report){.size = sizeof *report, .abi = SUBLET_INTERPOSER_ABI};
  if (__atomic_load_n(&active, __ATOMIC_ACQUIRE)) report->state = SUBLET_INTERPOSER_COVERED;
  report->driver_version = driver_version;
  sublet_fill_report(report);
  return 0;
}
