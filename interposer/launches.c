/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks for launches: counted, and bound by the share of the computing time. */
#include "share.h"

typedef uint64_t u64;
typedef uint32_t u32;

/* The arguments of a launch in a structure, as the driver has them. */
struct configured {
  u32 gx, gy, gz, bx, by, bz, shared;
  void* stream;
  const void* attributes;
  u32 count;
};
struct on_device {
  void* function;
  u32 gx, gy, gz, bx, by, bz, shared;
  void* stream;
  void** words;
};

_Static_assert(offsetof(struct configured, stream) == 32 && sizeof(struct on_device) == 56, "as the driver has them");

#define KEY sublet_key_of(function, (u64)gx * gy * gz, (u64)bx * by * bz)

/* `key` and `at` are read only if there is a share. */
#define LAUNCH(name, by_thread, key, at, parameters, arguments)                                       \
  EXPORTED int name parameters;                                                                       \
  int name parameters {                                                                               \
    SUBLET_NEXT(name);                                                                                \
    if (!is_hooked) return SUBLET_CALL(int(*) parameters) arguments;                                  \
    struct sublet_launch launch;                                                                      \
    launch.account = NO_ACCOUNT;                                                                      \
    if (sublet_has_share()) sublet_begin_launch(&launch, key, (struct sublet_stream){at, by_thread}); \
    const int result = SUBLET_CALL(int(*) parameters) arguments;                                      \
    if (launch.account != NO_ACCOUNT) sublet_end_launch(&launch, result);                             \
    return sublet_noted(result, COUNT_LAUNCHES, 1);                                                   \
  }
/* The same function for the default stream of each thread has a suffix. */
#define LAUNCHES(name, key, at, parameters, arguments) \
  LAUNCH(name, 0, key, at, parameters, arguments)      \
  LAUNCH(name##_ptsz, 1, key, at, parameters, arguments)

LAUNCHES(cuLaunchKernel, KEY, stream,
         (void* function, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 shared, void* stream, void** words,
          void** more),
         (function, gx, gy, gz, bx, by, bz, shared, stream, words, more))
LAUNCHES(cuLaunchCooperativeKernel, KEY, stream,
         (void* function, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 shared, void* stream, void** words),
         (function, gx, gy, gz, bx, by, bz, shared, stream, words))
LAUNCHES(cuGraphLaunch, sublet_key_of(graph, 0, 0), stream, (void* graph, void* stream), (graph, stream))
LAUNCH(cuLaunch, 0, sublet_key_of(function, 1, 0), NULL, (void* function), (function))
LAUNCH(cuLaunchGrid, 0, sublet_key_of(function, (u64)width * (u64)height, 0), NULL,
       (void* function, int width, int height), (function, width, height))
LAUNCH(cuLaunchGridAsync, 0, sublet_key_of(function, (u64)width * (u64)height, 0), stream,
       (void* function, int width, int height, void* stream), (function, width, height, stream))

/* The driver refuses a launch without arguments. */
static u64 key_of(const struct configured* how, const void* function) {
  if (how == NULL) return 0;
  return sublet_key_of(function, (u64)how->gx * how->gy * how->gz, (u64)how->bx * how->by * how->bz);
}
LAUNCHES(cuLaunchKernelEx, key_of(how, function), how != NULL ? how->stream : NULL,
         (const struct configured* how, void* function, void** words, void** more), (how, function, words, more))

/* --- a launch on several devices at once, each in the context of its stream */

enum { MOST_DEVICES = 64 };
typedef int (*several_function)(struct on_device*, u32, u32);
EXPORTED int cuLaunchCooperativeKernelMultiDevice(struct on_device* list, u32 count, u32 flags);

static int enter_context(void* stream) {
  int (*of_stream)(void*, void**) = (int (*)(void*, void**))sublet_real(HOOK_cuStreamGetCtx);
  int (*push)(void*) = (int (*)(void*))sublet_real(HOOK_cuCtxPushCurrent_v2);
  void* context = NULL;
  return of_stream != NULL && push != NULL && of_stream(stream, &context) == CUDA_SUCCESS &&
         push(context) == CUDA_SUCCESS;
}

static void leave_context(void) {
  int (*pop)(void**) = (int (*)(void**))sublet_real(HOOK_cuCtxPopCurrent_v2);
  void* context = NULL;
  if (pop != NULL) pop(&context);
}

int cuLaunchCooperativeKernelMultiDevice(struct on_device* list, u32 count, u32 flags) {
  SUBLET_NEXT(cuLaunchCooperativeKernelMultiDevice);
  const several_function next = SUBLET_CALL(several_function);
  struct sublet_launch launches[MOST_DEVICES];
  if (!is_hooked) return next(list, count, flags);
  const u32 gated = sublet_has_share() && list != NULL && count <= MOST_DEVICES ? count : 0;
  for (u32 i = 0; i < gated; ++i) {
    const struct on_device* one = &list[i];
    launches[i].account = NO_ACCOUNT;
    if (!enter_context(one->stream)) continue;
    const u64 key = sublet_key_of(one->function, (u64)one->gx * one->gy * one->gz, (u64)one->bx * one->by * one->bz);
    sublet_begin_launch(&launches[i], key, (struct sublet_stream){one->stream, 0});
    leave_context();
  }
  const int result = next(list, count, flags);
  for (u32 i = 0; i < gated; ++i) {
    if (launches[i].account == NO_ACCOUNT || !enter_context(list[i].stream)) continue;
    sublet_end_launch(&launches[i], result);
    leave_context();
  }
  return sublet_noted(result, COUNT_LAUNCHES, result == CUDA_SUCCESS ? count : 0);
}
