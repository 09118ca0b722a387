/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is linked with the driver, and looks functions up with its own place as the caller. */
#define _GNU_SOURCE
#include <dlfcn.h>

extern int cuInit(unsigned);
extern void* look(void*, const char*);
extern int init_here(unsigned);

int init_here(unsigned flags) { return cuInit(flags); }

void* look(void* handle, const char* name) {
  void* found = dlsym(handle, name);
  __asm__ volatile("" : "+r"(found)); /* no jump: the caller must be in this library */
  return found;
}
