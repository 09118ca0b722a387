/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded before the interposer: writes each name that a program asks cuGetProcAddress_v2 for, and the library of the
 * answer, to the file that RECORDED names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*address_function)(const char*, void**, int, uint64_t, int*);
static address_function next;

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  const int result = next(name, function, version, flags, status);
  FILE* file = fopen(getenv("RECORDED"), "a");
  Dl_info info = {0};
  const char* library = "-";
  if (result == 0 && function != NULL && *function != NULL && dladdr(*function, &info)) {
    const char* slash = strrchr(info.dli_fname, '/');
    library = slash != NULL ? slash + 1 : info.dli_fname;
  }
  fprintf(file, "%s %s\n", name, library);
  fclose(file);
  /* The runtime asks for the function itself, and then uses the answer. */
  if (result == 0 && version >= 12000 && strcmp(name, "cuGetProcAddress") == 0) *function = (void*)cuGetProcAddress_v2;
  return result;
}

/* The runtime asks dlsym for one function. This dlsym is before the interposer's, and asks it. */
void* dlsym(void* handle, const char* name) {
  void* (*real)(void*, const char*) = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  void* found = real(handle, name);
  if (found == NULL || strcmp(name, "cuGetProcAddress_v2") != 0) return found;
  next = (address_function)found;
  return (void*)cuGetProcAddress_v2;
}
