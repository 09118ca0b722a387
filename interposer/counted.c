/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks that count what a call does, and change nothing of it: copies, and waits, which tell the errors of work on the
 * device. */
#include "limit.h"

typedef uint64_t u64;
typedef uint32_t u32;

struct copy_2d {
  u64 source_x, source_y;
  int source_type;
  const void* source_host;
  u64 source_device;
  void* source_array;
  u64 source_pitch;
  u64 target_x, target_y;
  int target_type;
  void* target_host;
  u64 target_device;
  void* target_array;
  u64 target_pitch;
  u64 width, height; /* bytes, rows */
};

struct copy_2d_v1 {
  u32 source_x, source_y;
  int source_type;
  const void* source_host;
  u32 source_device;
  void* source_array;
  u32 source_pitch;
  u32 target_x, target_y;
  int target_type;
  void* target_host;
  u32 target_device;
  void* target_array;
  u32 target_pitch;
  u32 width, height;
};

/* Also for copies between devices, which have contexts in place of the unused words. */
struct copy_3d {
  u64 source_x, source_y, source_z, source_level;
  int source_type;
  const void* source_host;
  u64 source_device;
  void *source_array, *source_context;
  u64 source_pitch, source_height;
  u64 target_x, target_y, target_z, target_level;
  int target_type;
  void* target_host;
  u64 target_device;
  void *target_array, *target_context;
  u64 target_pitch, target_height;
  u64 width, height, depth;
};

struct copy_3d_v1 {
  u32 source_x, source_y, source_z, source_level;
  int source_type;
  const void* source_host;
  u32 source_device;
  void *source_array, *source_unused;
  u32 source_pitch, source_height;
  u32 target_x, target_y, target_z, target_level;
  int target_type;
  void* target_host;
  u32 target_device;
  void *target_array, *target_unused;
  u32 target_pitch, target_height;
  u32 width, height, depth;
};

_Static_assert(sizeof(struct copy_2d) == 128 && sizeof(struct copy_3d) == 200, "the layouts are those of the driver");
_Static_assert(offsetof(struct copy_2d_v1, width) == 84 && offsetof(struct copy_3d_v1, width) == 128, "the same");

static u64 sum(const u64* sizes, u64 count) {
  u64 bytes = 0;
  for (u64 i = 0; i < count; ++i) bytes += sizes[i];
  return bytes;
}

/* `amount` is read only after a call that succeeded, so that the driver has refused odd pointers before. */
#define COUNTED(name, what, amount, parameters, arguments)                                                          \
  EXPORTED int name parameters;                                                                                     \
  int name parameters {                                                                                             \
    SUBLET_NEXT(name);                                                                                              \
    const int result = SUBLET_CALL(int(*) parameters) arguments;                                                    \
    return is_hooked ? sublet_noted(result, what, result == CUDA_SUCCESS ? (u64)(amount) : 0) : result;             \
  }
/* The same function for the default stream of each thread has a suffix. */
#define BOTH(name, suffix, what, amount, parameters, arguments) \
  COUNTED(name, what, amount, parameters, arguments)            \
  COUNTED(name##suffix, what, amount, parameters, arguments)

/* --- waits */

#define WAIT(name, parameters, arguments) COUNTED(name, NO_COUNT, 0, parameters, arguments)
#define WAITS(name, parameters, arguments) BOTH(name, _ptsz, NO_COUNT, 0, parameters, arguments)

WAIT(cuCtxSynchronize, (void), ())
WAIT(cuCtxSynchronize_v2, (void* context), (context))
WAITS(cuStreamSynchronize, (void* stream), (stream))
WAITS(cuStreamQuery, (void* stream), (stream))
WAIT(cuEventSynchronize, (void* event), (event))
WAIT(cuEventQuery, (void* event), (event))

/* --- copies */

#define COPY(name, parameters, arguments) COUNTED(name, COUNT_COPIED, size, parameters, arguments)
#define COPIES(name, suffix, parameters, arguments) BOTH(name, suffix, COUNT_COPIED, size, parameters, arguments)

COPIES(cuMemcpy, _ptds, (u64 to, u64 from, u64 size), (to, from, size))
COPIES(cuMemcpyHtoD_v2, _ptds, (u64 to, const void* from, u64 size), (to, from, size))
COPIES(cuMemcpyDtoH_v2, _ptds, (void* to, u64 from, u64 size), (to, from, size))
COPIES(cuMemcpyDtoD_v2, _ptds, (u64 to, u64 from, u64 size), (to, from, size))
COPIES(cuMemcpyPeer, _ptds, (u64 to, void* there, u64 from, void* here, u64 size), (to, there, from, here, size))
COPIES(cuMemcpyAsync, _ptsz, (u64 to, u64 from, u64 size, void* stream), (to, from, size, stream))
COPIES(cuMemcpyHtoDAsync_v2, _ptsz, (u64 to, const void* from, u64 size, void* stream), (to, from, size, stream))
COPIES(cuMemcpyDtoHAsync_v2, _ptsz, (void* to, u64 from, u64 size, void* stream), (to, from, size, stream))
COPIES(cuMemcpyDtoDAsync_v2, _ptsz, (u64 to, u64 from, u64 size, void* stream), (to, from, size, stream))
COPIES(cuMemcpyPeerAsync, _ptsz, (u64 to, void* there, u64 from, void* here, u64 size, void* stream),
       (to, there, from, here, size, stream))
COPIES(cuMemcpyAtoH_v2, _ptds, (void* to, void* from, u64 place, u64 size), (to, from, place, size))
COPIES(cuMemcpyHtoA_v2, _ptds, (void* to, u64 place, const void* from, u64 size), (to, place, from, size))
COPIES(cuMemcpyAtoD_v2, _ptds, (u64 to, void* from, u64 place, u64 size), (to, from, place, size))
COPIES(cuMemcpyDtoA_v2, _ptds, (void* to, u64 place, u64 from, u64 size), (to, place, from, size))
COPIES(cuMemcpyAtoA_v2, _ptds, (void* to, u64 place, void* from, u64 source, u64 size),
       (to, place, from, source, size))
COPIES(cuMemcpyAtoHAsync_v2, _ptsz, (void* to, void* from, u64 place, u64 size, void* stream),
       (to, from, place, size, stream))
COPIES(cuMemcpyHtoAAsync_v2, _ptsz, (void* to, u64 place, const void* from, u64 size, void* stream),
       (to, place, from, size, stream))

COPY(cuMemcpyHtoD, (u32 to, const void* from, u32 size), (to, from, size))
COPY(cuMemcpyDtoH, (void* to, u32 from, u32 size), (to, from, size))
COPY(cuMemcpyDtoD, (u32 to, u32 from, u32 size), (to, from, size))
COPY(cuMemcpyHtoDAsync, (u32 to, const void* from, u32 size, void* stream), (to, from, size, stream))
COPY(cuMemcpyDtoHAsync, (void* to, u32 from, u32 size, void* stream), (to, from, size, stream))
COPY(cuMemcpyDtoDAsync, (u32 to, u32 from, u32 size, void* stream), (to, from, size, stream))
COPY(cuMemcpyAtoH, (void* to, void* from, u32 place, u32 size), (to, from, place, size))
COPY(cuMemcpyHtoA, (void* to, u32 place, const void* from, u32 size), (to, place, from, size))
COPY(cuMemcpyAtoD, (u32 to, void* from, u32 place, u32 size), (to, from, place, size))
COPY(cuMemcpyDtoA, (void* to, u32 place, u32 from, u32 size), (to, place, from, size))
COPY(cuMemcpyAtoA, (void* to, u32 place, void* from, u32 source, u32 size), (to, place, from, source, size))
COPY(cuMemcpyAtoHAsync, (void* to, void* from, u32 place, u32 size, void* stream), (to, from, place, size, stream))
COPY(cuMemcpyHtoAAsync, (void* to, u32 place, const void* from, u32 size, void* stream),
     (to, place, from, size, stream))

#define PLANE ((u64)copy->width * copy->height)
#define BOX ((u64)copy->width * copy->height * copy->depth)
#define PLANES(name, suffix, parameters, arguments) BOTH(name, suffix, COUNT_COPIED, PLANE, parameters, arguments)
#define BOXES(name, suffix, parameters, arguments) BOTH(name, suffix, COUNT_COPIED, BOX, parameters, arguments)

PLANES(cuMemcpy2D_v2, _ptds, (const struct copy_2d* copy), (copy))
PLANES(cuMemcpy2DUnaligned_v2, _ptds, (const struct copy_2d* copy), (copy))
PLANES(cuMemcpy2DAsync_v2, _ptsz, (const struct copy_2d* copy, void* stream), (copy, stream))
BOXES(cuMemcpy3D_v2, _ptds, (const struct copy_3d* copy), (copy))
BOXES(cuMemcpy3DPeer, _ptds, (const struct copy_3d* copy), (copy))
BOXES(cuMemcpy3DAsync_v2, _ptsz, (const struct copy_3d* copy, void* stream), (copy, stream))
BOXES(cuMemcpy3DPeerAsync, _ptsz, (const struct copy_3d* copy, void* stream), (copy, stream))
COUNTED(cuMemcpy2D, COUNT_COPIED, PLANE, (const struct copy_2d_v1* copy), (copy))
COUNTED(cuMemcpy2DUnaligned, COUNT_COPIED, PLANE, (const struct copy_2d_v1* copy), (copy))
COUNTED(cuMemcpy2DAsync, COUNT_COPIED, PLANE, (const struct copy_2d_v1* copy, void* stream), (copy, stream))
COUNTED(cuMemcpy3D, COUNT_COPIED, BOX, (const struct copy_3d_v1* copy), (copy))
COUNTED(cuMemcpy3DAsync, COUNT_COPIED, BOX, (const struct copy_3d_v1* copy, void* stream), (copy, stream))

#define BATCHES(name, parameters, arguments) \
  BOTH(name, _ptsz, COUNT_COPIED, sum(sizes, count), parameters, arguments)

BATCHES(cuMemcpyBatchAsync,
        (u64 * to, u64* from, u64* sizes, u64 count, void* how, u64* places, u64 hows, u64* failed, void* stream),
        (to, from, sizes, count, how, places, hows, failed, stream))
BATCHES(cuMemcpyBatchAsync_v2,
        (u64 * to, u64* from, u64* sizes, u64 count, void* how, u64* places, u64 hows, void* stream),
        (to, from, sizes, count, how, places, hows, stream))
