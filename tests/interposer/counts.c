/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded beside the interposer: at the end of the program it writes what the interposer counted to the file that
 * INTERPOSER_COUNTS names. */
#include "../../src/wire/interposer.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern uint64_t sublet_cuda_calls(const char*) __attribute__((weak));
extern int sublet_cuda_report(struct sublet_interposer_report*) __attribute__((weak));

static const char* const names[] = {
#define HOOK(name, family) #name,
#define WRITTEN(name, family) #name,
#include "../../interposer/generated/exports.inc"
};

static __attribute__((destructor)) void tell(void) {
  const char* path = getenv("INTERPOSER_COUNTS");
  struct sublet_interposer_report report = {.size = sizeof report};
  if (path == NULL || sublet_cuda_report == NULL || sublet_cuda_report(&report) != 0) return;
  char place[4096];
  snprintf(place, sizeof place, "%s.%d", path, getpid());
  FILE* file = fopen(place, "w");
  if (file == NULL) return;
  fprintf(file, "state %u\nreason %u\nversion %d\nhooks %u\nfound %u\nname %s\n", report.state, report.reason,
          report.driver_version, report.hooks, report.found, report.name);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
    if (sublet_cuda_calls(names[i]) != 0)
      fprintf(file, "%s %llu\n", names[i], (unsigned long long)sublet_cuda_calls(names[i]));
  fclose(file);
}
