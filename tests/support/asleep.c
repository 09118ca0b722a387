/* SPDX-License-Identifier: Apache-2.0
   A library to preload into a process. It makes the process believe that the machine has slept. The clocks that run
   while a machine sleeps are ahead by the seconds in the file named by SUBLET_TEST_ASLEEP; CLOCK_MONOTONIC is not. A
   second number in the file is the shift of the wall clock, in seconds. The kernel can do the same (time namespaces),
   but not to a process that already runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t ahead(clockid_t clock) {
  const char *path = getenv("SUBLET_TEST_ASLEEP");
  const int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  char text[64] = {0};
  long asleep = 0, set = 0;
  if (file < 0) return 0;
  if (read(file, text, sizeof text - 1) > 0) sscanf(text, "%ld %ld", &asleep, &set);
  close(file);
  return clock == CLOCK_BOOTTIME ? asleep : asleep + set;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_BOOTTIME))
    now->tv_sec += ahead(clock);
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *into) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (into) *into = precise.tv_sec;
  return precise.tv_sec;
}
