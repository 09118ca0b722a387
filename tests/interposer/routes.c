/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is linked with the driver, and looks its functions up by all routes of the C library. Prints a line
 * for each route: its name, the library that has the answer, and the symbol there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

extern int cuInit(unsigned);
extern int cuMemAlloc_v2(void*, unsigned long);
extern int cuLaunchKernel(void);
extern int cuGetProcAddress_v2(const char*, void**, int, unsigned long, int*);

static void say(const char* route, void* function) {
  Dl_info info;
  if (function == NULL || !dladdr(function, &info)) {
    printf("%s -\n", route);
    return;
  }
  const char* slash = strrchr(info.dli_fname, '/');
  printf("%s %s %s\n", route, slash != NULL ? slash + 1 : info.dli_fname, info.dli_sname);
}

static void* by_address(const char* name, int version, unsigned long flags) {
  void* function = NULL;
  return cuGetProcAddress_v2(name, &function, version, flags, NULL) == 0 ? function : NULL;
}

int main(int count, char** words) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  void* libc = dlopen("libc.so.6", RTLD_NOW);
  void* (*found)(void*, const char*) = (void* (*)(void*, const char*))dlsym(libc, "dlsym");
  say("link", (void*)cuMemAlloc_v2);
  say("handle", dlsym(driver, "cuLaunchKernel"));
  say("again", dlsym(driver, "cuLaunchKernel"));
  say("default", dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
  say("next", dlsym(RTLD_NEXT, "cuMemcpyHtoD_v2_ptds"));
  say("program", dlsym(dlopen(NULL, RTLD_NOW), "cuMemsetD8Async_ptsz"));
  say("version", dlvsym(driver, "cuMemAlloc_v2", "ANY_1.0"));
  say("asked-dlsym", found != NULL ? found(driver, "cuGraphLaunch") : NULL);
  say("table", dlsym(driver, "cuGetExportTable"));
  say("absent", dlsym(driver, "cuMemAlloc_v9"));
  say("lacking", dlsym(driver, "cuMemGetLocationInfo"));
  say("lacking-default", dlsym(RTLD_DEFAULT, "cuMemGetLocationInfo"));
  say("other", dlsym(RTLD_DEFAULT, "dl_iterate_phdr") != NULL ? (void*)cuLaunchKernel : NULL);
  say("address", by_address("cuMemAlloc", 12000, 0));
  say("address-first", by_address("cuMemAlloc", 2000, 0));
  say("address-thread", by_address("cuMemcpyHtoD", 12000, 2));
  say("address-context", by_address("cuCtxCreate", 12000, 0));
  say("self", by_address("cuGetProcAddress", 12000, 0));
  say("self-first", by_address("cuGetProcAddress", 11030, 0));
  for (int i = 1; i < count; ++i) {
    void* library = dlopen(words[i], RTLD_NOW | RTLD_LOCAL);
    void* (*look)(void*, const char*) = library != NULL ? (void* (*)(void*, const char*))dlsym(library, "look") : NULL;
    say("library-default", look != NULL ? look(RTLD_DEFAULT, "cuMemFree_v2") : NULL);
    say("library-next", look != NULL ? look(RTLD_NEXT, "cuMemFree_v2") : NULL);
    say("library-handle", look != NULL ? look(library, "cuMemFree_v2") : NULL);
  }
  return 0;
}
