/* SPDX-License-Identifier: Apache-2.0 */
/* A program without a driver: each look-up must say so, and nothing may begin. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

extern int cuInit(unsigned) __attribute__((weak));

int main(int count, char** words) {
  printf("default %s\n", dlsym(RTLD_DEFAULT, "cuInit") != NULL ? "found" : "absent");
  printf("next %s\n", dlsym(RTLD_NEXT, "cuInit") != NULL ? "found" : "absent");
  printf("error %s\n", dlerror() != NULL ? "told" : "silent");
  printf("other %s\n", dlsym(RTLD_DEFAULT, "printf") == (void*)printf ? "found" : "absent");
  if (count > 1) {
    /* A plugin that brings the driver with it, and that nobody else sees. */
    void* plugin = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    void* (*look)(void*, const char*) = plugin != NULL ? (void* (*)(void*, const char*))dlsym(plugin, "look") : NULL;
    printf("global %s\n", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL ? "found" : "absent");
    printf("lacking %s\n", look != NULL && look(RTLD_DEFAULT, "cuMemGetLocationInfo") != NULL ? "found" : "absent");
    printf("error %s\n", dlerror() != NULL ? "told" : "silent");
    printf("lacking-next %s\n", look != NULL && look(RTLD_NEXT, "cuMemGetLocationInfo") != NULL ? "found" : "absent");
    printf("error %s\n", dlerror() != NULL ? "told" : "silent");
    printf("error %s\n", look != NULL && look(RTLD_NEXT, "cuInit") != NULL && dlerror() == NULL ? "none" : "left");
    printf("plugin %s\n", look != NULL && look(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL ? "found" : "absent");
  }
  return 0;
}
