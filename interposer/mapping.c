/* SPDX-License-Identifier: Apache-2.0 */
/* Physical memory with handles: it stays on the card until its last handle is released and its last mapping is gone. */
#include "limit.h"

struct location {
  int32_t type, id;
};
struct properties {
  int32_t type, handle_types;
  struct location location;
};

typedef int (*create_function)(uint64_t*, size_t, const struct properties*, uint64_t);
typedef int (*handle_function)(uint64_t);
typedef int (*retain_function)(uint64_t*, void*);
typedef int (*map_function)(uint64_t, size_t, size_t, uint64_t, uint64_t);
typedef int (*unmap_function)(uint64_t, size_t);

EXPORTED int cuMemCreate(uint64_t* out, size_t size, const struct properties* wanted, uint64_t flags);
EXPORTED int cuMemRelease(uint64_t handle);
EXPORTED int cuMemRetainAllocationHandle(uint64_t* out, void* address);
EXPORTED int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, uint64_t flags);
EXPORTED int cuMemUnmap(uint64_t address, size_t size);

enum { LOCATION_IS_DEVICE = 1 };

/* Memory by its number: a is the bytes and the account + 2 (in the lowest byte), b the handles and mappings. */
static struct sublet_table memories;
static uint64_t last_memory;
/* By handle: a is the number of its memory, b how often it must be released. */
static struct sublet_table handles;
/* By address: a is the number of the memory, 0 for memory that is not ours to charge; b the size of the mapping. */
static struct sublet_table mappings;

static void hold(uint64_t memory) {
  struct sublet_slot* slot = memory != 0 ? sublet_find(&memories, memory) : NULL;
  if (slot != NULL) __atomic_fetch_add(&slot->b, 1, __ATOMIC_ACQ_REL);
}

static void let_go(uint64_t memory) {
  struct sublet_slot* slot = memory != 0 ? sublet_find(&memories, memory) : NULL;
  struct sublet_slot gone;
  if (slot == NULL || __atomic_sub_fetch(&slot->b, 1, __ATOMIC_ACQ_REL) != 0) return;
  if (sublet_take(&memories, memory, &gone)) sublet_discharge((int)(gone.a & 255) - 2, gone.a >> 8);
}

int cuMemCreate(uint64_t* out, size_t size, const struct properties* wanted, uint64_t flags) {
  SUBLET_NEXT(cuMemCreate);
  const create_function next = SUBLET_CALL(create_function);
  if (!is_hooked || wanted == NULL || wanted->location.type != LOCATION_IS_DEVICE)
    return next(out, size, wanted, flags);
  const int account = sublet_account_of(wanted->location.id);
  const uint64_t bytes = sublet_round(size, BLOCK);
  if (account < 0) return next(out, size, wanted, flags);
  if (!sublet_charge(account, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int result = sublet_noted(next(out, size, wanted, flags), COUNT_ALLOCATED, size);
  if (result != CUDA_SUCCESS) {
    sublet_discharge(account, bytes);
    return result;
  }
  const uint64_t memory = __atomic_add_fetch(&last_memory, 1, __ATOMIC_RELAXED);
  /* Without memory for the tables the bytes stay charged. */
  if (sublet_put(&memories, memory, bytes << 8 | (uint64_t)(account + 2), 1))
    (void)sublet_put(&handles, *out, memory, 1);
  return result;
}

/* The handle is given up before the driver is called, because the driver may give its number to another thread. */
static uint64_t give_up(uint64_t handle, struct sublet_slot* taken) {
  struct sublet_slot* slot = sublet_find(&handles, handle);
  *taken = (struct sublet_slot){0};
  if (slot == NULL) return 0;
  const uint64_t memory = slot->a;
  uint64_t uses = __atomic_load_n(&slot->b, __ATOMIC_ACQUIRE);
  while (uses > 1)
    if (__atomic_compare_exchange_n(&slot->b, &uses, uses - 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return memory;
  return sublet_take(&handles, handle, taken) ? memory : 0;
}

static void add_use(uint64_t handle, uint64_t memory) {
  struct sublet_slot* slot = sublet_find(&handles, handle);
  if (slot != NULL) __atomic_fetch_add(&slot->b, 1, __ATOMIC_ACQ_REL);
  else (void)sublet_put(&handles, handle, memory, 1);
}

int cuMemRelease(uint64_t handle) {
  SUBLET_NEXT(cuMemRelease);
  const handle_function next = SUBLET_CALL(handle_function);
  struct sublet_slot taken;
  if (!is_hooked) return next(handle);
  const uint64_t memory = give_up(handle, &taken);
  const int result = next(handle);
  if (result == CUDA_SUCCESS) let_go(memory);
  else if (memory != 0) add_use(handle, memory);
  return result;
}

/* The mapping that an address is in. Programs ask for its beginning as a rule. */
struct search {
  uint64_t address, memory;
};

static void look_at(struct sublet_slot* slot, uint64_t key, void* data) {
  struct search* search = data;
  if (search->address >= key && search->address - key < slot->b) search->memory = slot->a;
}

int cuMemRetainAllocationHandle(uint64_t* out, void* address) {
  SUBLET_NEXT(cuMemRetainAllocationHandle);
  const int result = SUBLET_CALL(retain_function)(out, address);
  if (!is_hooked || result != CUDA_SUCCESS) return result;
  struct search search = {(uint64_t)address, 0};
  sublet_each(&mappings, look_at, &search);
  if (search.memory == 0) return result;
  hold(search.memory);
  add_use(*out, search.memory);
  return result;
}

int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, uint64_t flags) {
  SUBLET_NEXT(cuMemMap);
  const map_function next = SUBLET_CALL(map_function);
  if (!is_hooked) return next(address, size, offset, handle, flags);
  struct sublet_slot* slot = sublet_find(&handles, handle);
  const uint64_t memory = slot != NULL ? slot->a : 0;
  hold(memory);
  const int result = next(address, size, offset, handle, flags);
  if (result == CUDA_SUCCESS) (void)sublet_put(&mappings, address, memory, size);
  else let_go(memory);
  return result;
}

/* The driver unmaps whole mappings only, without gaps between them. */
int cuMemUnmap(uint64_t address, size_t size) {
  SUBLET_NEXT(cuMemUnmap);
  const int result = SUBLET_CALL(unmap_function)(address, size);
  if (!is_hooked || result != CUDA_SUCCESS) return result;
  struct sublet_slot taken;
  for (uint64_t at = 0; at < size && sublet_take(&mappings, address + at, &taken); at += taken.b) let_go(taken.a);
  return result;
}
