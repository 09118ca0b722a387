/* SPDX-License-Identifier: Apache-2.0 */
/* Takes and frees memory of the card in blocks of 2 MiB, as a line of stdin says, and prints a line for each: `take N`
 * and `free N` print the blocks that it holds then, `info` the free and the total bytes, `files` its descriptors,
 * and `fork` calls the driver in a child. `launch N` and `copy N` launch N kernels and copy N KiB, `fail N` makes N
 * launches that fail. `bare` executes the program again without the library, `cat` executes a program without CUDA, and
 * `second` looks up a function of the driver that SECOND_DRIVER names. `again` executes the program
 * again with the library. `closefrom` closes all descriptors but those of the streams. `scribble N` writes N
 * random words to the page that the daemon reads, and `die CALL` ends the process at that system call, as does
 * TAKER_DIES_AT at the beginning. `taker ticking` gets a signal each millisecond. `taker full N` begins with
 * N free descriptors, with `unset` also without our variable in its own environment. `full N` leaves so many later, and
 * `room` ends that. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern int cuInit(unsigned);
extern int cuDevicePrimaryCtxRetain(void**, int);
extern int cuCtxSetCurrent(void*);
extern int cuMemAlloc_v2(uint64_t*, size_t);
extern int cuMemFree_v2(uint64_t);
extern int cuMemGetInfo_v2(size_t*, size_t*);
extern int cuMemcpyHtoD_v2(uint64_t, const void*, size_t);
extern int cuModuleLoadData(void**, const void*);
extern int cuModuleGetFunction(void**, void*, const char*);
extern int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                          void**);
extern int cuCtxSynchronize(void);

enum { MOST = 4096, BLOCK = 2 << 20 };
static uint64_t held[MOST];
static int count;

static int take(int wanted) {
  int result = 0;
  while (wanted-- > 0 && count < MOST && (result = cuMemAlloc_v2(&held[count], BLOCK)) == 0) ++count;
  return result;
}

static int give(int wanted) {
  int result = 0;
  while (wanted-- > 0 && count > 0) result |= cuMemFree_v2(held[--count]);
  return result;
}

static int files(void) {
  DIR* folder = opendir("/proc/self/fd");
  int found = 0;
  while (readdir(folder) != NULL) ++found;
  closedir(folder);
  return found - 3; /* . and .. and the folder itself */
}

static int second(void) {
  void* driver = dlopen(getenv("SECOND_DRIVER"), RTLD_NOW);
  return driver == NULL || dlsym(driver, "cuLaunchKernel") == NULL;
}

static int launch(void* function, int wanted) {
  uint64_t nanoseconds = 0;
  void* words[] = {&nanoseconds};
  int result = 0;
  while (wanted-- > 0 && result == 0) result = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, words, NULL);
  return result;
}

static int launch_busy(int wanted) {
  static const char image[] =
      ".version 6.0\n.target sm_50\n.address_size 64\n"
      ".visible .entry sublet_busy(.param .u64 p_nanoseconds) { ret; }\n";
  void *module = NULL, *function = NULL;
  int result = cuModuleLoadData(&module, image);
  if (result == 0) result = cuModuleGetFunction(&function, module, "sublet_busy");
  if (result == 0) result = launch(function, wanted);
  return result == 0 ? cuCtxSynchronize() : result;
}

static int copy(int wanted) {
  static char from[1024];
  int result = 0;
  while (wanted-- > 0 && result == 0) result = cuMemcpyHtoD_v2(held[0], from, sizeof from);
  return result;
}

static int in_child(void) {
  int status = 0;
  if (fork() == 0) _exit(take(1) != 0 ? 0 : 1);
  return wait(&status) < 0 ? -1 : status;
}

/* Asks NVML for the memory of the card, which begins with the daemon. */
static int ask_nvml(void) {
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  void* device = NULL;
  unsigned long long memory[3];
  if (nvml == NULL) return 1;
  int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
  int (*by_index)(unsigned, void**) = (int (*)(unsigned, void**))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
  int (*ask)(void*, void*) = (int (*)(void*, void*))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
  return init() != 0 || by_index(0, &device) != 0 || ask(device, memory) != 0;
}

/* As setproctitle does: the title is written over the environment, of which the C library gets a copy. */
static void set_title(void) {
  char* first = environ[0];
  char* end = first;
  int variables = 0;
  for (; environ[variables] != NULL; ++variables) end = environ[variables] + strlen(environ[variables]) + 1;
  char** copy = calloc((size_t)variables + 1, sizeof *copy);
  for (int i = 0; i < variables; ++i) copy[i] = strdup(environ[i]);
  environ = copy;
  memset(first, 0, (size_t)(end - first));
}

/* The page that may be written is the one that the daemon reads. */
static int scribble(int writes) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512], rights[8];
  volatile uint64_t *words = NULL;
  size_t count = 0;
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    unsigned long from, to;
    if (strstr(line, "memfd:sublet-credit") == NULL || sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3) continue;
    if (rights[1] != 'w') continue;
    words = (volatile uint64_t*)from;
    count = (to - from) / sizeof *words;
  }
  if (maps != NULL) fclose(maps);
  if (words == NULL) return 1;
  uint64_t chance = 60;
  for (int i = 0; i < writes; ++i) {
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    words[(chance >> 33) % count] = chance >> (chance >> 58);
  }
  return 0;
}

/* The kernel ends the process at the call. */
static int die_at(const char* name) {
  static const struct {
    const char* name;
    unsigned number, command;
  } calls[] = {{"socket", SYS_socket, 0},   {"connect", SYS_connect, 0},          {"sendto", SYS_sendto, 0},
               {"recvmsg", SYS_recvmsg, 0}, {"fcntl", SYS_fcntl, F_GET_SEALS}, {"close", SYS_close, 0},
               {"sleep", SYS_clock_nanosleep, 0}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    if (strcmp(calls[i].name, name) != 0) continue;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].command, 1, calls[i].command == 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) | prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
  }
  return 1;
}

static void on_tick(int signal) { (void)signal; }

/* As profilers and language runtimes do. A wait with a time limit ends at a signal, in spite of SA_RESTART. */
static void tick(void) {
  const struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
  const struct itimerval each = {{0, 1000}, {0, 1000}};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &each, NULL);
}

/* Leaves so many descriptors free; less than 0: all of them. */
static int set_room(int free_files) {
  struct rlimit limit;
  const int next = dup(0);
  if (next < 0 ? free_files >= 0 : close(next) != 0) return 1;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = free_files < 0 ? limit.rlim_max : (rlim_t)(next + free_files);
  return setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int words_count, char** words) {
  /* A program may fork before it begins. */
  if (words_count > 1 && strcmp(words[1], "forked") == 0) {
    int status = words_count > 2 && strcmp(words[2], "nvml") == 0 ? ask_nvml() : 0;
    const int child = status == 0 ? fork() : -1;
    if (child != 0) return waitpid(child, &status, 0) < 0 || status != 0;
  }
  if (words_count > 1 && strcmp(words[1], "titled") == 0) set_title();
  if (words_count > 1 && strcmp(words[1], "ticking") == 0) tick();
  if (words_count > 2 && strcmp(words[1], "full") == 0 && set_room(atoi(words[2])) != 0) return 1;
  if (words_count > 3 && strcmp(words[3], "unset") == 0) unsetenv("SUBLET_CREDIT");
  if (getenv("TAKER_DIES_AT") != NULL && die_at(getenv("TAKER_DIES_AT")) != 0) return 1;
  void* context = NULL;
  const int is_full = words_count > 1 && strcmp(words[1], "full") == 0; /* then no folder can be opened */
  const int before = is_full ? 0 : files();
  int result = cuInit(0);
  if (result == 0) result = cuDevicePrimaryCtxRetain(&context, 0);
  if (result == 0) result = cuCtxSetCurrent(context);
  printf("%d %d\n", result, is_full ? 0 : files() - before);
  fflush(stdout);
  char line[64], word[16], name[16];
  while (fgets(line, sizeof line, stdin) != NULL) {
    int number = 0;
    size_t free_bytes = 0, total = 0;
    result = 0;
    if (sscanf(line, "%15s %d", word, &number) < 1) continue;
    if (strcmp(word, "take") == 0) result = take(number);
    if (strcmp(word, "free") == 0) result = give(number);
    if (strcmp(word, "fork") == 0) result = in_child();
    if (strcmp(word, "launch") == 0) result = launch_busy(number);
    if (strcmp(word, "copy") == 0) result = copy(number);
    if (strcmp(word, "fail") == 0)
      for (result = 0; number > 0; --number) result = launch(NULL, 1);
    if (strcmp(word, "second") == 0) result = second();
    if (strcmp(word, "full") == 0) result = set_room(number);
    if (strcmp(word, "room") == 0) result = set_room(-1);
    if (strcmp(word, "scribble") == 0) result = scribble(number);
    if (strcmp(word, "die") == 0) result = sscanf(line, "%*s %15s", name) < 1 || die_at(name) != 0;
    if (strcmp(word, "closefrom") == 0) result = (int)syscall(SYS_close_range, 3, ~0u, 0);
    if (strcmp(word, "bare") == 0 || strcmp(word, "again") == 0) {
      if (word[0] == 'b') unsetenv("LD_PRELOAD");
      execl("/proc/self/exe", words[0], (char*)NULL);
    }
    if (strcmp(word, "cat") == 0) execlp("sh", "sh", "-c", "echo 0 0; exec cat", (char*)NULL);
    if (strcmp(word, "info") == 0) result = cuMemGetInfo_v2(&free_bytes, &total);
    if (strcmp(word, "info") == 0) printf("%d %zu %zu\n", result, free_bytes, total);
    else printf("%d %d\n", result, strcmp(word, "files") == 0 ? files() : count);
    fflush(stdout);
  }
  return 0;
}
