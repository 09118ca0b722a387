/* SPDX-License-Identifier: Apache-2.0
 * The SPANK plugin of Sublet. A task of a job with --vram or shards gets its lease before its program starts.
 *
 * The plugin starts `sublet slurm lease` as root before the task gives up root: for the first task of a step in
 * init_post_opt, for the others in task_init_privileged. The helper asks the daemon, and the task waits for the
 * helper's answer (task_init). All texts of the helper go to the user's stderr.
 * The wait is in the task and never in the prolog: a failure ends the task, and drains no node. */
#include "vram_size.h"

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(sublet, 1);

static struct {
  char vram[32], tier[32], pausable[32]; /* the user's options; "": not given */
  char program[256], host[256], timeout[32], usual_pausable[32], accounts[1024];
} settings = {.program = "/usr/bin/sublet", .timeout = "60s", .usual_pausable = "auto"};

static int helper_socket = -1; /* the helper of this task; -1: none */
static int early_socket = -1;  /* the helper of the first task, which begins while the step gets ready */

static int take(char *into, size_t size, const char *option, const char *value) {
  if (value == NULL || value[0] == '\0' || strlen(value) >= size) {
    slurm_error("sublet: --%s needs a value", option);
    return ESPANK_BAD_ARG;
  }
  snprintf(into, size, "%s", value);
  return ESPANK_SUCCESS;
}

static int is_one_of(const char *word, const char *const *words) {
  for (; *words != NULL; ++words)
    if (!strcmp(word, *words)) return 1;
  return 0;
}

static int take_vram(int val, const char *value, int remote) {
  (void)val, (void)remote;
  if (take(settings.vram, sizeof settings.vram, "vram", value)) return ESPANK_BAD_ARG;
  if (sublet_mib_of(value) > 0) return ESPANK_SUCCESS;
  slurm_error("sublet: --vram=%s is no size; write the memory of a card, such as 6GiB or 1536MiB (at least 256MiB)",
              value);
  return ESPANK_BAD_ARG;
}

static int take_tier(int val, const char *value, int remote) {
  static const char *const tiers[] = {"interactive", "standard", "batch", "spot", NULL};
  (void)val, (void)remote;
  if (take(settings.tier, sizeof settings.tier, "vram-tier", value)) return ESPANK_BAD_ARG;
  if (is_one_of(value, tiers)) return ESPANK_SUCCESS;
  slurm_error("sublet: --vram-tier=%s is unknown; one of interactive, standard, batch, spot", value);
  return ESPANK_BAD_ARG;
}

static int take_pausable(int val, const char *value, int remote) {
  static const char *const words[] = {"auto", "driver", "cooperative", "no", NULL};
  (void)val, (void)remote;
  if (take(settings.pausable, sizeof settings.pausable, "pausable", value)) return ESPANK_BAD_ARG;
  if (is_one_of(value, words)) return ESPANK_SUCCESS;
  slurm_error("sublet: --pausable=%s is unknown; one of auto, driver, cooperative, no", value);
  return ESPANK_BAD_ARG;
}

static int refuse_share(int val, const char *value, int remote) {
  (void)val, (void)value, (void)remote;
  slurm_error("sublet: --vram-share is not supported by this version; Sublet does not divide computing time");
  return ESPANK_BAD_ARG;
}

static struct spank_option options[] = {
    {"vram", "SIZE", "Sublet: memory that the job needs on its card, such as 6GiB", 1, 0, take_vram},
    {"vram-tier", "TIER", "Sublet: interactive, standard, batch or spot", 1, 0, take_tier},
    {"pausable", "HOW", "Sublet: auto, driver, cooperative, or no for a job that is never paused", 1, 0, take_pausable},
    {"vram-share", "PERCENT", "Sublet: not supported by this version", 1, 0, refuse_share},
    SPANK_OPTIONS_TABLE_END};

static void take_argument(const char *argument) {
  const struct {
    const char *name;
    char *into;
    size_t size;
  } known[] = {{"sublet=", settings.program, sizeof settings.program},
               {"host=", settings.host, sizeof settings.host},
               {"timeout=", settings.timeout, sizeof settings.timeout},
               {"pausable=", settings.usual_pausable, sizeof settings.usual_pausable},
               {"accounts=", settings.accounts, sizeof settings.accounts}};
  size_t i;
  for (i = 0; i < sizeof known / sizeof known[0]; ++i) {
    const size_t length = strlen(known[i].name);
    if (strncmp(argument, known[i].name, length)) continue;
    if (strlen(argument + length) >= known[i].size) break;
    snprintf(known[i].into, known[i].size, "%s", argument + length);
    return;
  }
  slurm_error("sublet: plugstack.conf has the unknown argument '%s'", argument);
}

int slurm_spank_init(spank_t spank, int argc, char **argv) {
  int i;
  for (i = 0; i < argc; ++i) take_argument(argv[i]);
  for (i = 0; options[i].name != NULL; ++i)
    if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) return -1;
  return 0;
}

static void run_helper(int socket, const char *job, const char *uid) {
  const char *argv[28];
  const char *slurm_conf = getenv("SLURM_CONF"), *node = getenv("SLURMD_NODENAME"); /* of slurmd, not of the user */
  char conf[512] = "";
  int count = 0, fd;
  if (slurm_conf != NULL && strlen(slurm_conf) < 480) snprintf(conf, sizeof conf, "SLURM_CONF=%s", slurm_conf);
  argv[count++] = settings.program;
  argv[count++] = "slurm", argv[count++] = "lease";
  if (settings.host[0] != '\0') argv[count++] = "--host", argv[count++] = settings.host;
  argv[count++] = "--job", argv[count++] = job;
  argv[count++] = "--uid", argv[count++] = uid;
  argv[count++] = "--node", argv[count++] = node != NULL ? node : "";
  argv[count++] = "--timeout", argv[count++] = settings.timeout;
  if (settings.vram[0] != '\0') argv[count++] = "--vram", argv[count++] = settings.vram;
  if (settings.tier[0] != '\0') argv[count++] = "--tier", argv[count++] = settings.tier;
  if (settings.accounts[0] != '\0') argv[count++] = "--accounts", argv[count++] = settings.accounts;
  argv[count++] = "--pausable";
  argv[count++] = settings.pausable[0] != '\0' ? settings.pausable : settings.usual_pausable;
  argv[count] = NULL;
  dup2(socket, 0);
  dup2(socket, 1);
  fd = open("/dev/null", O_WRONLY);
  if (fd >= 0) dup2(fd, 2);
  for (fd = 3; fd < 1024; ++fd) close(fd);
  execve(settings.program, (char *const *)argv,
         (char *const[]){"PATH=/usr/sbin:/usr/bin:/sbin:/bin", conf[0] != '\0' ? conf : NULL, NULL});
  dprintf(1, "fail cannot run %s: %s\n", settings.program, strerror(errno));
}

/* The helper is no child of the task, whose program must not find one that it did not start. */
static int start_helper(const char *job, const char *uid) {
  int pair[2];
  pid_t child;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return -1;
  child = fork();
  if (child == 0) {
    sigset_t none;
    setsid();
    if (fork() != 0) _exit(0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    run_helper(pair[1], job, uid);
    _exit(127);
  }
  close(pair[1]);
  if (child < 0 || waitpid(child, NULL, 0) != child) {
    close(pair[0]);
    return -1;
  }
  return pair[0];
}

/* slurmstepd sets the number of shards by the credential of the step, over anything that the user wrote there. A step
 * without shards (--gres=none) has a variable of its user, if any: its size is asked of Slurm's controller. */
static int wants_lease(spank_t spank) {
  char shards[32];
  if (settings.vram[0] != '\0') return 1;
  return spank_getenv(spank, "SLURM_SHARDS_ON_NODE", shards, sizeof shards) == ESPANK_SUCCESS && atol(shards) > 0;
}

static int start_helper_of(spank_t spank) {
  uint32_t job = 0;
  uid_t uid = 0;
  char job_text[32], uid_text[32];
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS || spank_get_item(spank, S_JOB_UID, &uid)) return -1;
  snprintf(job_text, sizeof job_text, "%u", job);
  snprintf(uid_text, sizeof uid_text, "%u", (unsigned)uid);
  return start_helper(job_text, uid_text);
}

static void close_early(void) {
  if (early_socket >= 0) close(early_socket);
  early_socket = -1;
}

/* In slurmstepd, as root, before its tasks exist. The step of PrologFlags=Contain has none. */
int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv) {
  uint32_t step = SLURM_EXTERN_CONT;
  (void)argc, (void)argv;
  if (spank_context() != S_CTX_REMOTE || !wants_lease(spank)) return 0;
  if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step == SLURM_EXTERN_CONT) return 0;
  early_socket = start_helper_of(spank);
  return 0;
}

/* In slurmstepd: the helper's connection ends with the first task. */
int slurm_spank_task_post_fork(spank_t spank, int argc, char **argv) {
  (void)spank, (void)argc, (void)argv;
  close_early();
  return 0;
}

/* As root, before the task becomes the user. A failure is told in task_init, where the user's stderr is. */
int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv) {
  int task = -1;
  (void)argc, (void)argv;
  if (!wants_lease(spank)) return 0;
  if (spank_get_item(spank, S_TASK_ID, &task) == ESPANK_SUCCESS && task == 0 && early_socket >= 0) {
    helper_socket = early_socket;
    early_socket = -1;
    return 0;
  }
  close_early();
  helper_socket = start_helper_of(spank);
  return 0;
}

static void pass_on(spank_t spank, char *text, size_t size, const char *name) {
  char value[1024];
  size_t i;
  if (spank_getenv(spank, name, value, sizeof value) != ESPANK_SUCCESS) value[0] = '\0';
  for (i = 0; value[i] != '\0'; ++i)
    if ((unsigned char)value[i] < ' ') value[i] = ' ';
  snprintf(text + strlen(text), size - strlen(text), "%s %s\n", name, value);
}

/* Takes a line of the helper. 1: the lease is there; -1: there is none; 0: go on. */
static int obey(spank_t spank, char *line) {
  char *value;
  if (!strncmp(line, "say ", 4)) {
    dprintf(2, "sublet: %s\n", line + 4);
    return 0;
  }
  if (!strncmp(line, "env ", 4) && (value = strchr(line, '=')) != NULL) {
    *value = '\0';
    spank_setenv(spank, line + 4, value + 1, 1);
    return 0;
  }
  if (!strcmp(line, "ok")) return 1;
  if (!strncmp(line, "fail ", 5)) dprintf(2, "sublet: %s\n", line + 5);
  return strncmp(line, "fail ", 5) ? 0 : -1;
}

/* Seconds of silence after which a helper counts as hung. It writes a line every two seconds. */
static long longest_silence(void) {
  char *unit;
  const long number = strtol(settings.timeout, &unit, 10);
  if (number <= 0 || number > 100000) return 70;
  if (unit[0] == '\0' || !strcmp(unit, "s")) return number + 10;
  if (!strcmp(unit, "m") || !strcmp(unit, "min")) return 60 * number + 10;
  return 70;
}

/* Waits for a byte of the helper. 0: it is silent for too long. Each look lasts a second, so that a time in which the
 * task itself is stopped does not count. */
static int is_heard(void) {
  struct pollfd waited = {helper_socket, POLLIN, 0};
  long left;
  for (left = longest_silence(); left > 0; --left)
    if (poll(&waited, 1, 1000) > 0) return 1;
  return 0;
}

/* As the user, in the control group of the job, with the user's stderr. */
int slurm_spank_task_init(spank_t spank, int argc, char **argv) {
  char text[8192], line[8192];
  size_t used = 0;
  int result = 0;
  (void)argc, (void)argv;
  if (!wants_lease(spank)) return 0;
  if (helper_socket < 0) {
    dprintf(2, "sublet: this task gets no lease: no process could be started; tell the admin of the node\n");
    return -1;
  }
  snprintf(text, sizeof text, "pid %d\n", (int)getpid());
  pass_on(spank, text, sizeof text, "SLURM_JOB_NAME");
  snprintf(text + strlen(text), sizeof text - strlen(text), "go\n");
  if (send(helper_socket, text, strlen(text), MSG_NOSIGNAL) < 0) result = 0; /* its last words may still be there */
  while (result == 0) {
    char c;
    ssize_t got;
    if (!is_heard()) {
      dprintf(2, "sublet: this task gets no lease: the helper of the plugin does not answer; see the log of slurmd\n");
      result = -1;
      continue;
    }
    got = read(helper_socket, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      dprintf(2, "sublet: this task gets no lease: the helper of the plugin ended; see the log of slurmd\n");
      result = -1;
    } else if (c == '\n') {
      line[used] = '\0', used = 0;
      result = obey(spank, line);
    } else if (used + 1 < sizeof line) {
      line[used++] = c;
    }
  }
  close(helper_socket);
  helper_socket = -1;
  return result > 0 ? 0 : -1;
}
