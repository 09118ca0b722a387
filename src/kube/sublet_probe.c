// SPDX-License-Identifier: Apache-2.0
// sublet-probe COMMAND…: a liveness probe that a paused pod passes. Runs the command, and succeeds without it while the
// lease of the pod is paused. A static program, since it runs in the images of others.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char* const standing_still[] = {"queued", "offered", "pausing", "paused", "resuming"};

// Seconds. The agent writes the file every 5 s while it and the daemon are there. An older file may hide a pause; after
// ten minutes the command decides.
static const time_t stale_after = 15, given_up_after = 600;

// Whether the first line of the state file says that the lease stands still, or the file is too old to tell. Without a
// file the command decides.
static int is_paused(void) {
  const char* path = getenv("SUBLET_STATE");
  FILE* file = fopen(path != NULL && *path != '\0' ? path : "/run/sublet/lease/state", "re");
  char line[64] = "";
  if (file == NULL) return 0;
  struct stat info;
  struct timespec now;
  if (fstat(fileno(file), &info) == 0 && timespec_get(&now, TIME_UTC) != 0) {
    const time_t age = now.tv_sec - info.st_mtime;
    if (age > stale_after && age <= given_up_after) {
      fclose(file);
      return 1;
    }
  }
  if (fgets(line, sizeof line, file) == NULL) line[0] = '\0';
  fclose(file);
  line[strcspn(line, "\n")] = '\0';
  for (size_t i = 0; i < sizeof standing_still / sizeof *standing_still; ++i)
    if (strcmp(line, standing_still[i]) == 0) return 1;
  return 0;
}

// The command may have begun before the pause, and then waits for a program that stands still.
static int wait_for(pid_t child, const sigset_t* ends) {
  const struct timespec look = {.tv_sec = 0, .tv_nsec = 200 * 1000 * 1000};
  for (;;) {
    int status = 0;
    const pid_t done = waitpid(child, &status, WNOHANG);
    if (done == child && WIFEXITED(status)) return WEXITSTATUS(status) != 0 && is_paused() ? 0 : WEXITSTATUS(status);
    if (done == child) return is_paused() ? 0 : 128 + WTERMSIG(status);
    if (done < 0 && errno != EINTR) return 1;
    if (is_paused()) {
      kill(child, SIGKILL);
      waitpid(child, NULL, 0);
      return 0;
    }
    sigtimedwait(ends, NULL, &look);
  }
}

int main(int argc, char** argv) {
  if (argc < 2 || strcmp(argv[1], "--help") == 0) {
    fputs("sublet-probe COMMAND...: runs the command, and succeeds without it while the lease of the pod is paused\n",
          argc < 2 ? stderr : stdout);
    return argc < 2 ? 2 : 0;
  }
  if (strcmp(argv[1], "--version") == 0) return puts("sublet-probe " SUBLET_VERSION) < 0;
  if (is_paused()) return 0;
  sigset_t ends, before;
  sigemptyset(&ends);
  sigaddset(&ends, SIGCHLD);
  sigprocmask(SIG_BLOCK, &ends, &before);
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &before, NULL);
    execvp(argv[1], argv + 1);
    fprintf(stderr, "sublet-probe: %s: %s\n", argv[1], strerror(errno));
    _exit(127);
  }
  return wait_for(child, &ends);
}
