/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that belongs to a context: linear, pitched and managed memory, arrays and mipmapped arrays.
 *
 * The driver gives several small allocations one block of 2 MiB. Blocks are charged, by the addresses that they have:
 * the first allocation in a block charges it, and the last one that is freed gives it back. */
#include "limit.h"

typedef int (*allocate_function)(uint64_t*, size_t);
typedef int (*allocate_function_v1)(uint32_t*, uint32_t);
typedef int (*pitch_function)(uint64_t*, size_t*, size_t, size_t, unsigned);
typedef int (*pitch_function_v1)(uint32_t*, uint32_t*, uint32_t, uint32_t, unsigned);
typedef int (*managed_function)(uint64_t*, size_t, unsigned);
typedef int (*free_function)(uint64_t);
typedef int (*free_function_v1)(uint32_t);
typedef int (*free_in_order_function)(uint64_t, void*);
typedef int (*host_function)(void*, void (*)(void*), void*);

EXPORTED int cuMemAlloc(uint32_t* out, uint32_t size);
EXPORTED int cuMemAlloc_v2(uint64_t* out, size_t size);
EXPORTED int cuMemAllocPitch(uint32_t* out, uint32_t* pitch, uint32_t width, uint32_t height, unsigned element);
EXPORTED int cuMemAllocPitch_v2(uint64_t* out, size_t* pitch, size_t width, size_t height, unsigned element);
EXPORTED int cuMemAllocManaged(uint64_t* out, size_t size, unsigned flags);
EXPORTED int cuMemFree(uint32_t address);
EXPORTED int cuMemFree_v2(uint64_t address);
EXPORTED int cuMemFreeAsync(uint64_t address, void* stream);
EXPORTED int cuMemFreeAsync_ptsz(uint64_t address, void* stream);

/* By address: a is the size and the account + 2 (in the lowest byte), b the context. Addresses are multiples of 256;
 * IN_ORDER marks memory that is freed when its stream comes to it. */
static struct sublet_table allocations;
enum { IN_ORDER = 1 };
/* By number of a block: how many allocations are in it. */
static struct sublet_table blocks;

/* --- claims */

int sublet_begin_claim(struct sublet_claim* claim, uint64_t bytes) {
  claim->where = sublet_here();
  claim->bytes = claim->where.account < 0 ? 0 : bytes;
  return sublet_charge(claim->where.account, claim->bytes);
}

int sublet_end_claim(const struct sublet_claim* claim, int result) {
  if (result != CUDA_SUCCESS) sublet_discharge(claim->where.account, claim->bytes);
  return sublet_noted(result, NO_COUNT, 0);
}

/* --- blocks */

static uint64_t enter_block(uint64_t block) {
  struct sublet_slot* slot = sublet_place(&blocks, block);
  return slot == NULL || __atomic_fetch_add(&slot->a, 1, __ATOMIC_ACQ_REL) == 0 ? BLOCK : 0;
}

static uint64_t leave_block(uint64_t block) {
  struct sublet_slot* slot = sublet_find(&blocks, block);
  return slot == NULL || __atomic_fetch_sub(&slot->a, 1, __ATOMIC_ACQ_REL) == 1 ? BLOCK : 0;
}

/* Only the first and the last block of an allocation can be shared with others. -> bytes that are held newly, or no
 * longer */
static uint64_t count_blocks(uint64_t address, uint64_t size, uint64_t (*edge)(uint64_t)) {
  const uint64_t first = address >> BLOCK_SHIFT, last = (address + size - 1) >> BLOCK_SHIFT;
  if (first == last) return edge(first);
  return edge(first) + edge(last) + (last - first - 1) * BLOCK;
}

/* --- what the hooks have in common */

static int keep(const struct sublet_claim* claim, int result, uint64_t address, uint64_t size) {
  const int account = claim->where.account;
  if (result != CUDA_SUCCESS || account < 0) return sublet_end_claim(claim, result);
  const uint64_t held = count_blocks(address, size, enter_block);
  /* Without memory for the table the bytes stay charged. */
  (void)sublet_put(&allocations, address, size << 8 | (uint64_t)(account + 2), claim->where.context);
  sublet_add(account, held > claim->bytes ? held - claim->bytes : 0);
  sublet_discharge(account, claim->bytes > held ? claim->bytes - held : 0);
  return sublet_noted(result, COUNT_ALLOCATED, size);
}

static void forget(const struct sublet_slot* slot) {
  const uint64_t address = slot->key & ~(uint64_t)IN_ORDER;
  sublet_discharge((int)(slot->a & 255) - 2, count_blocks(address, slot->a >> 8, leave_block));
}

/* The place is taken away before the driver frees: another thread may get the same address at once. */
static int finish_free(int had, const struct sublet_slot* slot, int result) {
  if (had && result == CUDA_SUCCESS) forget(slot);
  else if (had) (void)sublet_put(&allocations, slot->key, slot->a, slot->b);
  return sublet_noted(result, NO_COUNT, 0);
}

static void end_one(struct sublet_slot* slot, uint64_t key, void* context) {
  struct sublet_slot copy;
  if (slot->b == *(uint64_t*)context && sublet_empty(slot, key, &copy)) forget(&copy);
}

/* --- linear memory */

int cuMemAlloc_v2(uint64_t* out, size_t size) {
  SUBLET_NEXT(cuMemAlloc_v2);
  struct sublet_claim claim;
  if (!is_hooked) return SUBLET_CALL(allocate_function)(out, size);
  if (!sublet_begin_claim(&claim, sublet_round(size, BLOCK))) return CUDA_ERROR_OUT_OF_MEMORY;
  const int result = SUBLET_CALL(allocate_function)(out, size);
  return keep(&claim, result, result == CUDA_SUCCESS ? *out : 0, size);
}

int cuMemAlloc(uint32_t* out, uint32_t size) {
  SUBLET_NEXT(cuMemAlloc);
  struct sublet_claim claim;
  if (!is_hooked) return SUBLET_CALL(allocate_function_v1)(out, size);
  if (!sublet_begin_claim(&claim, sublet_round(size, BLOCK))) return CUDA_ERROR_OUT_OF_MEMORY;
  const int result = SUBLET_CALL(allocate_function_v1)(out, size);
  return keep(&claim, result, result == CUDA_SUCCESS ? *out : 0, size);
}

/* The driver chooses the pitch; rows of 512 bytes are what it takes at least. */
static uint64_t pitched(uint64_t width, uint64_t height) {
  const uint64_t row = sublet_round(width, 512);
  return height != 0 && row > MOST_BYTES / height ? MOST_BYTES : sublet_round(row * height, BLOCK);
}

int cuMemAllocPitch_v2(uint64_t* out, size_t* pitch, size_t width, size_t height, unsigned element) {
  SUBLET_NEXT(cuMemAllocPitch_v2);
  struct sublet_claim claim;
  if (!is_hooked) return SUBLET_CALL(pitch_function)(out, pitch, width, height, element);
  if (!sublet_begin_claim(&claim, pitched(width, height))) return CUDA_ERROR_OUT_OF_MEMORY;
  const int result = SUBLET_CALL(pitch_function)(out, pitch, width, height, element);
  return keep(&claim, result, result == CUDA_SUCCESS ? *out : 0, result == CUDA_SUCCESS ? *pitch * height : 0);
}

int cuMemAllocPitch(uint32_t* out, uint32_t* pitch, uint32_t width, uint32_t height, unsigned element) {
  SUBLET_NEXT(cuMemAllocPitch);
  struct sublet_claim claim;
  if (!is_hooked) return SUBLET_CALL(pitch_function_v1)(out, pitch, width, height, element);
  if (!sublet_begin_claim(&claim, pitched(width, height))) return CUDA_ERROR_OUT_OF_MEMORY;
  const int result = SUBLET_CALL(pitch_function_v1)(out, pitch, width, height, element);
  return keep(&claim, result, result == CUDA_SUCCESS ? *out : 0,
              result == CUDA_SUCCESS ? (uint64_t)*pitch * height : 0);
}

/* All of it may move to the card, so that all of it is charged. */
int cuMemAllocManaged(uint64_t* out, size_t size, unsigned flags) {
  SUBLET_NEXT(cuMemAllocManaged);
  struct sublet_claim claim;
  if (!is_hooked) return SUBLET_CALL(managed_function)(out, size, flags);
  if (!sublet_begin_claim(&claim, sublet_round(size, BLOCK))) return CUDA_ERROR_OUT_OF_MEMORY;
  const int result = SUBLET_CALL(managed_function)(out, size, flags);
  return keep(&claim, result, result == CUDA_SUCCESS ? *out : 0, size);
}

int cuMemFree_v2(uint64_t address) {
  SUBLET_NEXT(cuMemFree_v2);
  struct sublet_slot slot;
  if (!is_hooked) return SUBLET_CALL(free_function)(address);
  const int had = sublet_take(&allocations, address, &slot);
  return finish_free(had, &slot, SUBLET_CALL(free_function)(address));
}

int cuMemFree(uint32_t address) {
  SUBLET_NEXT(cuMemFree);
  struct sublet_slot slot;
  if (!is_hooked) return SUBLET_CALL(free_function_v1)(address);
  const int had = sublet_take(&allocations, address, &slot);
  return finish_free(had, &slot, SUBLET_CALL(free_function_v1)(address));
}

/* --- memory that is freed in the order of a stream. Memory of pools is in no table here. */

static void freed_in_order(void* address) {
  struct sublet_slot slot;
  if (sublet_take(&allocations, (uint64_t)address | IN_ORDER, &slot)) forget(&slot);
}

static int free_in_order(free_in_order_function next, int launch_hook, uint64_t address, void* stream) {
  struct sublet_slot slot;
  const int had = sublet_take(&allocations, address, &slot);
  const int result = next(address, stream);
  const host_function launch = (host_function)sublet_real(launch_hook);
  if (!had || result != CUDA_SUCCESS || launch == NULL) return finish_free(had, &slot, result);
  /* The stream tells when it has come to this place. */
  (void)sublet_put(&allocations, address | IN_ORDER, slot.a, slot.b);
  if (launch(stream, freed_in_order, (void*)address) != CUDA_SUCCESS) freed_in_order((void*)address);
  return result;
}

int cuMemFreeAsync(uint64_t address, void* stream) {
  SUBLET_NEXT(cuMemFreeAsync);
  const free_in_order_function next = SUBLET_CALL(free_in_order_function);
  return is_hooked ? free_in_order(next, HOOK_cuLaunchHostFunc, address, stream) : next(address, stream);
}

int cuMemFreeAsync_ptsz(uint64_t address, void* stream) {
  SUBLET_NEXT(cuMemFreeAsync_ptsz);
  const free_in_order_function next = SUBLET_CALL(free_in_order_function);
  return is_hooked ? free_in_order(next, HOOK_cuLaunchHostFunc_ptsz, address, stream) : next(address, stream);
}

void sublet_end_memory(uint64_t context) {
  sublet_each(&allocations, end_one, &context);
  sublet_end_arrays(context);
}
