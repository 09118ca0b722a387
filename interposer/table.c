/* SPDX-License-Identifier: Apache-2.0 */
/* Tables without locks, of any size: a table is a row of levels, each twice as large as the one before. A key stands in
 * a short window of places of a level, or in a later level if that window is full. Levels are mapped when they are
 * needed, and stay. */
#include "kernel.h"
#include "limit.h"

#include <sys/mman.h>

enum { FIRST_LEVEL = 1024, WINDOW = 16 };
/* The first words that a place may have instead of a key. */
enum { NEVER_USED = 0, IN_CHANGE = 1, EMPTY = 2, KEYS = 3 };

static struct sublet_slot* level_of(struct sublet_table* table, int level, int make) {
  struct sublet_slot* slots = __atomic_load_n(&table->level[level], __ATOMIC_ACQUIRE);
  if (slots != NULL || !make) return slots;
  const long bytes = (long)(((uint64_t)FIRST_LEVEL << level) * sizeof *slots);
  const long mapped =
      sublet_kernel(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped < 0 && mapped > -4096) return NULL;
  struct sublet_slot* made = (struct sublet_slot*)mapped;
  if (__atomic_compare_exchange_n(&table->level[level], &slots, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return made;
  sublet_kernel(SYS_munmap, mapped, bytes, 0, 0, 0, 0); /* another thread was first */
  return slots;
}

static struct sublet_slot* window_of(struct sublet_slot* slots, int level, uint64_t key) {
  const uint64_t hash = key * 0x9e3779b97f4a7c15u;
  return slots + ((hash >> 32) & (((uint64_t)FIRST_LEVEL << level) / WINDOW - 1)) * WINDOW;
}

struct sublet_slot* sublet_find(struct sublet_table* table, uint64_t key) {
  key += KEYS;
  for (int level = 0; level < SUBLET_LEVELS; ++level) {
    struct sublet_slot* slots = level_of(table, level, 0);
    if (slots == NULL) return NULL;
    struct sublet_slot* window = window_of(slots, level, key);
    for (int i = 0; i < WINDOW; ++i) {
      const uint64_t there = __atomic_load_n(&window[i].key, __ATOMIC_ACQUIRE);
      if (there == key) return &window[i];
      if (there == NEVER_USED) return NULL;
    }
  }
  return NULL;
}

int sublet_put(struct sublet_table* table, uint64_t key, uint64_t a, uint64_t b) {
  key += KEYS;
  for (int level = 0; level < SUBLET_LEVELS; ++level) {
    struct sublet_slot* slots = level_of(table, level, 1);
    if (slots == NULL) return 0;
    struct sublet_slot* window = window_of(slots, level, key);
    for (int i = 0; i < WINDOW; ++i) {
      uint64_t there = __atomic_load_n(&window[i].key, __ATOMIC_RELAXED);
      if (there != NEVER_USED && there != EMPTY) continue;
      if (!__atomic_compare_exchange_n(&window[i].key, &there, IN_CHANGE, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        continue;
      window[i].a = a;
      window[i].b = b;
      __atomic_store_n(&window[i].key, key, __ATOMIC_RELEASE);
      return 1;
    }
  }
  return 0;
}

static int empty(struct sublet_slot* slot, uint64_t key, struct sublet_slot* out) {
  if (!__atomic_compare_exchange_n(&slot->key, &key, IN_CHANGE, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 0;
  *out = (struct sublet_slot){key - KEYS, slot->a, slot->b};
  __atomic_store_n(&slot->key, EMPTY, __ATOMIC_RELEASE);
  return 1;
}

int sublet_take(struct sublet_table* table, uint64_t key, struct sublet_slot* out) {
  struct sublet_slot* slot = sublet_find(table, key);
  return slot != NULL && empty(slot, key + KEYS, out);
}

/* Places of such a table are never emptied, so that the first free place of the window is where every thread looks. */
struct sublet_slot* sublet_place(struct sublet_table* table, uint64_t key) {
  key += KEYS;
  for (int level = 0; level < SUBLET_LEVELS; ++level) {
    struct sublet_slot* slots = level_of(table, level, 1);
    if (slots == NULL) return NULL;
    struct sublet_slot* window = window_of(slots, level, key);
    for (int i = 0; i < WINDOW; ++i) {
      uint64_t there = __atomic_load_n(&window[i].key, __ATOMIC_ACQUIRE);
      if (there == key) return &window[i];
      if (there != NEVER_USED) continue;
      if (__atomic_compare_exchange_n(&window[i].key, &there, key, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
          there == key)
        return &window[i];
    }
  }
  return NULL;
}

void sublet_each(struct sublet_table* table, void (*visit)(struct sublet_slot*, uint64_t, void*), void* data) {
  for (int level = 0; level < SUBLET_LEVELS; ++level) {
    struct sublet_slot* slots = level_of(table, level, 0);
    if (slots == NULL) return;
    for (uint64_t i = 0; i < (uint64_t)FIRST_LEVEL << level; ++i) {
      const uint64_t key = __atomic_load_n(&slots[i].key, __ATOMIC_ACQUIRE);
      if (key >= KEYS) visit(&slots[i], key - KEYS, data);
    }
  }
}

int sublet_empty(struct sublet_slot* slot, uint64_t key, struct sublet_slot* out) {
  return empty(slot, key + KEYS, out);
}
