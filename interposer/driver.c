/* SPDX-License-Identifier: Apache-2.0 */
#include "limit.h"

#include <dlfcn.h>

/* A table from addresses to hooks with open addressing. The driver is found at most once, and threads that find it at
 * the same time write the same values, so that no lock is needed. */
enum { PLACES = 4096 };
static uintptr_t addresses[PLACES];
static uint16_t hooks_at[PLACES];
static uintptr_t driver_base; /* 0: not found yet */
static uint32_t found_count;

static struct {
  uint32_t taken; /* 1: a thread writes the others, 2: they are written */
  uint32_t reason;
  char name[64];
} uncovered;

void* sublet_reals[HOOKS];

_Static_assert(PLACES >= 4 * HOOKS, "the table has to stay sparse");

void sublet_note_uncovered(uint32_t reason, const char* name) {
  uint32_t free = 0;
  if (!__atomic_compare_exchange_n(&uncovered.taken, &free, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
  uncovered.reason = reason;
  sublet_copy_name(uncovered.name, name, sizeof uncovered.name);
  __atomic_store_n(&uncovered.taken, 2, __ATOMIC_RELEASE);
  sublet_tell_coverage();
}

int sublet_is_uncovered(void) { return __atomic_load_n(&uncovered.taken, __ATOMIC_ACQUIRE) == 2; }

static uint32_t place_of(uintptr_t address) { return (uint32_t)((address >> 4) * 2654435761u) % PLACES; }

/* Two names of one address are the same function with the same arguments, so either hook forwards it rightly. The first
 * in the order of names is kept, in every thread the same. */
static void remember(uintptr_t address, int hook) {
  for (uint32_t at = place_of(address);; at = (at + 1) % PLACES) {
    uintptr_t there = __atomic_load_n(&addresses[at], __ATOMIC_ACQUIRE);
    if (there == 0) {
      __atomic_store_n(&hooks_at[at], (uint16_t)hook, __ATOMIC_RELAXED);
      if (__atomic_compare_exchange_n(&addresses[at], &there, address, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
    }
    if (there == address) return;
  }
}

int sublet_is_driver(const struct sublet_object* object) { return sublet_begins(object->soname, "libcuda.so"); }

static int take_driver(const struct sublet_object* object, void* data) {
  if (!sublet_is_driver(object)) return 0;
  uint32_t found = 0;
  for (uint32_t i = 1; i < object->count; ++i) {
    const char* name = object->strings + object->symbols[i].st_name;
    if (name[0] != 'c' || name[1] != 'u') continue;
    void* function = sublet_function(object, &object->symbols[i]);
    if (function == NULL) continue;
    const int hook = sublet_hook_of(name);
    if (hook >= 0) {
      __atomic_store_n(&sublet_reals[hook], function, __ATOMIC_RELEASE);
      ++found;
    } else if (sublet_needs_hook(name)) {
      sublet_note_uncovered(SUBLET_INTERPOSER_UNKNOWN_EXPORT, name);
    }
  }
  for (int hook = 0; hook < HOOKS; ++hook)
    if (sublet_reals[hook] != NULL) remember((uintptr_t)sublet_reals[hook], hook);
  __atomic_store_n(&found_count, found, __ATOMIC_RELAXED);
  *(struct sublet_object*)data = *object;
  return 1;
}

int sublet_find_driver(void) {
  if (__atomic_load_n(&driver_base, __ATOMIC_ACQUIRE) != 0) return 1;
  struct sublet_object driver = {0};
  if (!sublet_objects(take_driver, &driver)) return 0;
  /* The addresses have to stay the driver's: it is never unloaded from now on. */
  void* (*open)(const char*, int) = (void* (*)(const char*, int))sublet_real_dlopen();
  if (open != NULL) (void)open(driver.path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  __atomic_store_n(&driver_base, driver.base, __ATOMIC_RELEASE);
  return 1;
}

void* sublet_real(int hook) {
  if (!sublet_find_driver()) return NULL;
  void* function = __atomic_load_n(&sublet_reals[hook], __ATOMIC_ACQUIRE);
  return function == (void*)sublet_lacking ? NULL : function;
}

static int find_hook(const void* function) {
  if (function == NULL || !sublet_find_driver()) return -1;
  for (uint32_t at = place_of((uintptr_t)function);; at = (at + 1) % PLACES) {
    const uintptr_t there = __atomic_load_n(&addresses[at], __ATOMIC_ACQUIRE);
    if (there == 0) return -1;
    if (there == (uintptr_t)function) return __atomic_load_n(&hooks_at[at], __ATOMIC_RELAXED);
  }
}

/* A driver that is linked without -Bsymbolic finds our functions in place of its own. */
int sublet_is_known(const void* function) {
  for (int hook = 0; hook < HOOKS; ++hook)
    if (sublet_hooks[hook] == function) return 1;
  return find_hook(function) >= 0;
}

void* sublet_hooked(void* function) {
  const int hook = find_hook(function);
  if (hook >= 0) return sublet_hooks[hook];
  /* A function of another copy of the driver goes past the hooks. */
  struct sublet_object object;
  if (function != NULL && sublet_object_at(function, &object) && object.soname != NULL && sublet_is_driver(&object) &&
      object.base != __atomic_load_n(&driver_base, __ATOMIC_ACQUIRE))
    sublet_note_uncovered(SUBLET_INTERPOSER_SECOND_DRIVER, object.path);
  return function;
}

void sublet_fill_report(struct sublet_interposer_report* report) {
  report->hooks = HOOKS;
  report->found = __atomic_load_n(&found_count, __ATOMIC_RELAXED);
  if (report->state == SUBLET_INTERPOSER_PASSIVE || __atomic_load_n(&uncovered.taken, __ATOMIC_ACQUIRE) != 2) return;
  report->state = SUBLET_INTERPOSER_UNCOVERED;
  report->reason = uncovered.reason;
  sublet_copy_name(report->name, uncovered.name, sizeof report->name);
}
