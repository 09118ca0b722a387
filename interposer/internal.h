/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the preloaded library. It uses nothing of the C library but dl_iterate_phdr and environ, has no
 * constructor, and takes no memory and no lock. Everything here may run in any thread, and in several at once. */
#ifndef SUBLET_INTERPOSER_INTERNAL_H
#define SUBLET_INTERPOSER_INTERNAL_H

#include "wire/interposer.h"

#include <link.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__x86_64__)
#error "the stubs of hooks.S are for x86-64"
#endif

#define EXPORTED __attribute__((visibility("default")))

enum { CUDA_SUCCESS = 0, CUDA_ERROR_NOT_FOUND = 500 };

/* One number for each hook, in the order of their names. */
enum sublet_hook {
#define HOOK(name, family) HOOK_##name,
#define WRITTEN(name, family) HOOK_##name,
#include "generated/exports.inc"
#undef HOOK
#undef WRITTEN
  HOOKS
};

/* --- objects.c: the loaded objects, read from their tables instead of by dlsym, which others may replace */

struct sublet_object {
  const char* path;   /* "": the program */
  const char* soname; /* "": none */
  uintptr_t base;     /* difference of addresses and the file */
  const ElfW(Sym) * symbols;
  const char* strings;
  const uint16_t* versions; /* NULL: symbols have no versions */
  uint32_t count;           /* of symbols */
  int place;                /* in the list of the loader: 0 is the program, then preloaded libraries in their order */
};

/* Calls back for each object with symbols until `visit` returns non-zero, and returns that. */
int sublet_objects(int (*visit)(const struct sublet_object*, void*), void* data);
/* The object that has an address: its path, base and place. 0: none has it. */
int sublet_object_at(const void* address, struct sublet_object* out);
/* The function that a symbol of an object names; NULL: it is not defined there, or no function. */
void* sublet_function(const struct sublet_object* object, const ElfW(Sym) * symbol);
/* clock_gettime as the kernel gives it to each process, without a system call; NULL: it does not. */
void* sublet_kernel_clock(void);
/* dlsym, dlvsym or dlopen of the C library; NULL: it has none. */
void* sublet_real_dlsym(void);
void* sublet_real_dlvsym(void);
void* sublet_real_dlopen(void);
void* sublet_real_dlclose(void);

/* --- names.c */

int sublet_same(const char* a, const char* b);
int sublet_begins(const char* text, const char* prefix);
void sublet_copy_name(char* out, const char* name, size_t size); /* cut at size - 1 */
/* The hook of an export, -1 for a name that has none. */
int sublet_hook_of(const char* name);
/* Whether an export of this name has to have a hook. */
int sublet_needs_hook(const char* name);
const char* sublet_name(int hook);

/* --- lookup.c */

/* The function that a call would reach without us while the driver lacks it or is not loaded: the next of its name in
 * the global order behind us, or in the libraries of the caller. NULL: there is none. */
void* sublet_stub(int hook, const void* caller);

/* --- driver.c: the driver's functions, and the way back from a function to its hook */

/* Finds the driver once it is loaded, and keeps it loaded. 0: it is not there. */
int sublet_find_driver(void);
int sublet_is_driver(const struct sublet_object* object);
/* The driver's function; NULL: the driver has none of this name, or is not there. */
void* sublet_real(int hook);
/* The hook for a function of the driver. Every other address is returned as it is. */
void* sublet_hooked(void* function);
/* Whether a function is an export of the driver that has a hook, or a hook. */
int sublet_is_known(const void* function);
/* Whether a reason was noted why calls may pass by. */
int sublet_is_uncovered(void);
/* Notes why calls may pass by. Only the first reason is kept. */
void sublet_note_uncovered(uint32_t reason, const char* name);

/* --- nvml.c */

/* Whether the library has a hook for this function of NVML. */
int sublet_is_of_nvml(const char* name);
/* The hook; NULL: NVML is not loaded, or lacks the function. */
void* sublet_nvml_hook(const char* name);

/* --- hooks.S and hooks.c */

extern void* const sublet_hooks[HOOKS]; /* the exported functions, by number */
extern void* sublet_reals[HOOKS];       /* written by driver.c */
void sublet_count(int hook);
/* Called by the stub of a thread that has no counters yet. Returns the function to go on with. */
void* sublet_slow(uint64_t hook, const void* caller);
/* The same for a function that the driver lacks. */
void* sublet_behind(uint64_t hook, const void* caller);
/* Stands in sublet_reals for a function that the driver lacks. Only the stubs of hooks.S can call it. */
extern char sublet_lacking[];

#endif
