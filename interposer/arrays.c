/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays and mipmapped arrays. The driver does not tell how many bytes an array takes, so that it is charged by its
 * elements, in blocks. */
#include "limit.h"

struct descriptor_v1 {
  uint32_t width, height;
  int32_t format;
  uint32_t channels;
};
struct descriptor {
  uint64_t width, height;
  int32_t format;
  uint32_t channels;
};
struct descriptor_3d_v1 {
  uint32_t width, height, depth;
  int32_t format;
  uint32_t channels, flags;
};
struct descriptor_3d {
  uint64_t width, height, depth;
  int32_t format;
  uint32_t channels, flags;
};

typedef int (*create_function)(void**, const void*);
typedef int (*levels_function)(void**, const void*, unsigned);
typedef int (*destroy_function)(void*);

EXPORTED int cuArrayCreate(void** out, const struct descriptor_v1* wanted);
EXPORTED int cuArrayCreate_v2(void** out, const struct descriptor* wanted);
EXPORTED int cuArray3DCreate(void** out, const struct descriptor_3d_v1* wanted);
EXPORTED int cuArray3DCreate_v2(void** out, const struct descriptor_3d* wanted);
EXPORTED int cuArrayDestroy(void* array);
EXPORTED int cuMipmappedArrayCreate(void** out, const struct descriptor_3d* wanted, unsigned levels);
EXPORTED int cuMipmappedArrayDestroy(void* array);

/* By handle: a is the bytes and the account + 2 (in the lowest byte), b the context. */
static struct sublet_table arrays;

/* Such arrays have no memory of their own: it is mapped into them. */
enum { SPARSE = 0x40, MAPPED_LATER = 0x80 };

/* Bytes of an element. A format that nobody knows counts 4 bytes for each channel. */
static uint64_t bytes_of_element(int format, unsigned channels) {
  const uint64_t count = channels < 1 || channels > 4 ? 4 : channels;
  if (format >= 0x91 && format <= 0x9e) return 1;                                  /* compressed: at most a byte */
  if (format == 0x01 || format == 0x08 || format == 0xb0) return count;            /* of 8 bits; NV12 */
  if (format == 0x02 || format == 0x09 || format == 0x10) return 2 * count;        /* of 16 bits */
  if (format >= 0xc0 && format <= 0xcb) return (format - 0xc0) % 6 < 3 ? count : 2 * count; /* normalised */
  return 4 * count;
}

static uint64_t bytes_of(const struct descriptor_3d* of, unsigned levels) {
  if ((of->flags & (SPARSE | MAPPED_LATER)) != 0) return 0;
  uint64_t sum = 0, width = of->width, height = of->height, depth = of->depth;
  const uint64_t element = bytes_of_element(of->format, of->channels);
  for (unsigned level = 0; level < levels && level < 32; ++level) {
    if (width > MOST_BYTES / element) return MOST_BYTES;
    const uint64_t row = sublet_round(width * element, 64), rows = height > 0 ? height : 1;
    if (rows > MOST_BYTES / row || (depth > 0 ? depth : 1) > MOST_BYTES / (row * rows)) return MOST_BYTES;
    sum += row * rows * (depth > 0 ? depth : 1);
    if (sum >= MOST_BYTES) return MOST_BYTES;
    width = width > 1 ? width / 2 : 1;
    height /= height > 1 ? 2 : 1;
    depth /= depth > 1 ? 2 : 1;
  }
  return sublet_round(sum, BLOCK);
}

/* A null descriptor is the driver's to refuse. */
static int begin(struct sublet_claim* claim, const struct descriptor_3d* wanted, unsigned levels) {
  return sublet_begin_claim(claim, wanted != NULL && wanted->width != 0 ? bytes_of(wanted, levels) : 0);
}

static int keep(const struct sublet_claim* claim, int result, void** out) {
  if (result == CUDA_SUCCESS && claim->bytes != 0)
    (void)sublet_put(&arrays, (uint64_t)*out, claim->bytes << 8 | (uint64_t)(claim->where.account + 2),
                     claim->where.context);
  if (result == CUDA_SUCCESS) (void)sublet_noted(result, COUNT_ALLOCATED, claim->bytes);
  return sublet_end_claim(claim, result);
}

int cuArrayCreate(void** out, const struct descriptor_v1* wanted) {
  SUBLET_NEXT(cuArrayCreate);
  struct sublet_claim claim;
  if (!is_hooked || wanted == NULL) return SUBLET_CALL(create_function)(out, wanted);
  const struct descriptor_3d same = {wanted->width, wanted->height, 0, wanted->format, wanted->channels, 0};
  if (!begin(&claim, &same, 1)) return CUDA_ERROR_OUT_OF_MEMORY;
  return keep(&claim, SUBLET_CALL(create_function)(out, wanted), out);
}

int cuArrayCreate_v2(void** out, const struct descriptor* wanted) {
  SUBLET_NEXT(cuArrayCreate_v2);
  struct sublet_claim claim;
  if (!is_hooked || wanted == NULL) return SUBLET_CALL(create_function)(out, wanted);
  const struct descriptor_3d same = {wanted->width, wanted->height, 0, wanted->format, wanted->channels, 0};
  if (!begin(&claim, &same, 1)) return CUDA_ERROR_OUT_OF_MEMORY;
  return keep(&claim, SUBLET_CALL(create_function)(out, wanted), out);
}

int cuArray3DCreate(void** out, const struct descriptor_3d_v1* wanted) {
  SUBLET_NEXT(cuArray3DCreate);
  struct sublet_claim claim;
  if (!is_hooked || wanted == NULL) return SUBLET_CALL(create_function)(out, wanted);
  const struct descriptor_3d same = {wanted->width,  wanted->height,   wanted->depth,
                                     wanted->format, wanted->channels, wanted->flags};
  if (!begin(&claim, &same, 1)) return CUDA_ERROR_OUT_OF_MEMORY;
  return keep(&claim, SUBLET_CALL(create_function)(out, wanted), out);
}

int cuArray3DCreate_v2(void** out, const struct descriptor_3d* wanted) {
  SUBLET_NEXT(cuArray3DCreate_v2);
  struct sublet_claim claim;
  if (!is_hooked) return SUBLET_CALL(create_function)(out, wanted);
  if (!begin(&claim, wanted, 1)) return CUDA_ERROR_OUT_OF_MEMORY;
  return keep(&claim, SUBLET_CALL(create_function)(out, wanted), out);
}

int cuMipmappedArrayCreate(void** out, const struct descriptor_3d* wanted, unsigned levels) {
  SUBLET_NEXT(cuMipmappedArrayCreate);
  struct sublet_claim claim;
  if (!is_hooked) return SUBLET_CALL(levels_function)(out, wanted, levels);
  if (!begin(&claim, wanted, levels)) return CUDA_ERROR_OUT_OF_MEMORY;
  return keep(&claim, SUBLET_CALL(levels_function)(out, wanted, levels), out);
}

static void forget(const struct sublet_slot* slot) { sublet_discharge((int)(slot->a & 255) - 2, slot->a >> 8); }

static int destroy(destroy_function next, void* array) {
  struct sublet_slot slot;
  const int had = sublet_take(&arrays, (uint64_t)array, &slot);
  const int result = next(array);
  if (had && result == CUDA_SUCCESS) forget(&slot);
  else if (had) (void)sublet_put(&arrays, slot.key, slot.a, slot.b);
  return result;
}

int cuArrayDestroy(void* array) {
  SUBLET_NEXT(cuArrayDestroy);
  const destroy_function next = SUBLET_CALL(destroy_function);
  return is_hooked ? destroy(next, array) : next(array);
}

int cuMipmappedArrayDestroy(void* array) {
  SUBLET_NEXT(cuMipmappedArrayDestroy);
  const destroy_function next = SUBLET_CALL(destroy_function);
  return is_hooked ? destroy(next, array) : next(array);
}

static void end_one(struct sublet_slot* slot, uint64_t key, void* context) {
  struct sublet_slot copy;
  if (slot->b == *(uint64_t*)context && sublet_empty(slot, key, &copy)) forget(&copy);
}

void sublet_end_arrays(uint64_t context) { sublet_each(&arrays, end_one, &context); }
