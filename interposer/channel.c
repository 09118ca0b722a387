/* SPDX-License-Identifier: Apache-2.0 */
/* The channel to the daemon (src/wire/credit.h). Only threads of the program use it, in calls that wait for memory
 * anyway: there is no thread of ours, and no descriptor stays open. */
#include "kernel.h"
#include "share.h"
#include "wire/credit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>

/* Times are in nanoseconds of the clock that only runs forward. */
#define SECOND INT64_C(1000000000)
#define TIME_TO_WAIT (5 * SECOND)
#define PAUSE (SECOND / 20)
enum { MOST_BEGINNINGS = 64 };
/* A launch does not wait longer for a connection or an answer, and launches ask that often. */
#define TIME_OF_LAUNCH (SECOND / 10)
#define LOOK_AGAIN (10 * SECOND)
/* The path of the socket; its first byte is 0 until the process has begun with a daemon. */
static struct sockaddr_un daemon_place;

/* The process that has begun with the daemon. A forked child has the same pages. It takes others when it begins itself,
 * which succeeds only if its parent has not used the driver. */
static int32_t begun_pid;

enum { NOT_BEGUN = 0, BEGUN = -1 }; /* else the pid of the process in which a thread begins */
static int32_t beginning;
/* 1: the process had no free descriptor when it began, and begins again soon. */
static uint32_t is_put_off;

/* --- the environment, as the program was started with it */

static int read_byte(int file, char* buffer, long* have, long* at) {
  if (*at == *have) {
    do *have = sublet_kernel(SYS_read, file, (long)buffer, 4096, 0, 0, 0);
    while (*have == -EINTR);
    *at = 0;
    if (*have <= 0) return -1;
  }
  return (unsigned char)buffer[(*at)++];
}

static const char wanted[] = SUBLET_CREDIT_VARIABLE "=";

static int is_full(long error) { return error == -EMFILE || error == -ENFILE; }

/* -> the bytes of the value that were written to `out`, `size` of them at most; -1: there was no free descriptor */
static long read_started(char* out, size_t size) {
  char buffer[4096];
  long have = 0, at = 0;
  const long file = sublet_kernel(SYS_openat, AT_FDCWD, (long)"/proc/self/environ", O_RDONLY | O_CLOEXEC, 0, 0, 0);
  if (file < 0) return is_full(file) ? -1 : 0;
  size_t matched = 0, length = 0;
  int byte = read_byte((int)file, buffer, &have, &at);
  for (int begins = 1; byte >= 0 && length == 0; byte = read_byte((int)file, buffer, &have, &at)) {
    if (begins && wanted[matched] == (char)byte) ++matched;
    else begins = 0;
    if (byte == 0) begins = 1, matched = 0;
    if (begins && wanted[matched] == '\0' && matched != 0) {
      while ((byte = read_byte((int)file, buffer, &have, &at)) > 0 && length < size) out[length++] = (char)byte;
      break;
    }
  }
  sublet_kernel(SYS_close, file, 0, 0, 0, 0, 0);
  return (long)length;
}

/* The same from the C library's environment: a program that sets its title writes over the first one. */
extern char** environ __attribute__((weak, visibility("default")));
static size_t read_copied(char* out, size_t size) {
  size_t length = 0;
  for (char** each = &environ == NULL ? NULL : environ; each != NULL && *each != NULL && length == 0; ++each)
    if (sublet_begins(*each, wanted))
      for (const char* from = *each + sizeof wanted - 1; *from != '\0' && length < size; ++from) out[length++] = *from;
  return length;
}

/* 0: the variable is not there, or its value is no path. -1: there was no free descriptor to look for it. */
static int find_daemon(struct sockaddr_un* out) {
  const long started = read_started(out->sun_path, sizeof out->sun_path);
  const size_t length = started > 0 ? (size_t)started : read_copied(out->sun_path, sizeof out->sun_path);
  out->sun_family = AF_UNIX;
  if (length == 0) return started < 0 ? -1 : 0;
  if (length >= sizeof out->sun_path || out->sun_path[0] != '/') return 0;
  out->sun_path[length] = '\0';
  return 1;
}

/* --- a question and its answer */

enum { MOST_FILES = 3 };
struct files {
  int count;
  int file[MOST_FILES];
  int is_cut; /* the process had no free descriptor for more */
};

static void close_files(const struct files* files) {
  for (int i = 0; i < files->count; ++i) sublet_kernel(SYS_close, files->file[i], 0, 0, 0, 0, 0);
}

static int64_t read_clock(void) {
  struct timespec now = {0, 0};
  sublet_kernel(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0, 0, 0);
  return now.tv_sec * SECOND + now.tv_nsec;
}

/* Signals of the program end a call that waits. The next try gets the time that is left. */
static void set_time_left(int socket, int option, int64_t until) {
  int64_t microseconds = (until - read_clock()) / 1000;
  if (microseconds < 1) microseconds = 1;
  const struct timeval wait = {microseconds / 1000000, microseconds % 1000000};
  sublet_kernel(SYS_setsockopt, socket, SOL_SOCKET, option, (long)&wait, sizeof wait, 0);
}

static int is_interrupted(long result, int64_t until) { return result == -EINTR && read_clock() < until; }

enum { NO_ANSWER = 1000, NO_DAEMON = 1001, NO_DESCRIPTOR = 1002 };

/* -> a socket, or a negative error */
static long connect_daemon(const struct sockaddr_un* place, int64_t until) {
  const long made = sublet_kernel(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, 0, 0, 0);
  if (made < 0) return made;
  long result;
  do {
    set_time_left((int)made, SO_SNDTIMEO, until);
    result = sublet_kernel(SYS_connect, made, (long)place, sizeof *place, 0, 0, 0);
  } while (is_interrupted(result, until));
  if (result == 0) return made;
  sublet_kernel(SYS_close, made, 0, 0, 0, 0, 0);
  return result;
}

static long send_question(int socket, const struct sublet_credit_question* question, int64_t until) {
  long size;
  do {
    set_time_left(socket, SO_SNDTIMEO, until);
    size = sublet_kernel(SYS_sendto, socket, (long)question, sizeof *question, MSG_NOSIGNAL, 0, 0);
  } while (is_interrupted(size, until));
  return size;
}

/* A message with more files than the answer may have is cut, and no descriptor of it is lost. */
static long receive(int socket, struct sublet_credit_answer* answer, struct files* files, int64_t until) {
  union {
    char bytes[CMSG_SPACE(MOST_FILES * sizeof(int))];
    struct cmsghdr align;
  } control;
  struct iovec part = {answer, sizeof *answer};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                           .msg_controllen = CMSG_LEN(MOST_FILES * sizeof(int))};
  long size;
  do {
    set_time_left(socket, SO_RCVTIMEO, until);
    size = sublet_kernel(SYS_recvmsg, socket, (long)&message, MSG_CMSG_CLOEXEC, 0, 0, 0);
  } while (is_interrupted(size, until));
  files->is_cut = size >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
  if (size < 0 || message.msg_controllen < sizeof(struct cmsghdr)) return size;
  if (control.align.cmsg_level != SOL_SOCKET || control.align.cmsg_type != SCM_RIGHTS) return size;
  const int* sent = (const int*)CMSG_DATA(&control.align);
  const size_t count = (control.align.cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (; files->count < MOST_FILES && (size_t)files->count < count; ++files->count)
    files->file[files->count] = sent[files->count];
  return size;
}

/* -> the result of the answer, or why there is none. A daemon that takes no connection until then is none. Its answer
 * may take as long as `patience`. The caller closes the files. */
static uint32_t ask(const struct sublet_credit_question* question, struct files* files, int64_t until,
                    int64_t patience) {
  struct sublet_credit_answer answer = {0};
  const long connected = connect_daemon(&daemon_place, until);
  if (connected < 0) return is_full(connected) ? NO_DESCRIPTOR : NO_DAEMON;
  const int socket = (int)connected;
  until = read_clock() + patience;
  long size = send_question(socket, question, until);
  if (size == (long)sizeof *question) size = receive(socket, &answer, files, until);
  sublet_kernel(SYS_close, socket, 0, 0, 0, 0, 0);
  if (size != (long)sizeof answer || answer.size != sizeof answer || answer.abi != SUBLET_CREDIT_ABI)
    return NO_ANSWER;
  return answer.result;
}

static void pause_until(int64_t until) {
  const struct timespec then = {until / SECOND, until % SECOND};
  while (sublet_kernel(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, (long)&then, 0, 0, 0) == -EINTR) {}
}

/* The same. A daemon that starts again is back within some seconds. It may have ended before it has answered, so that a
 * question without an answer is asked once more. Other threads may close descriptors meanwhile. After a wait in vain,
 * the next questions do not wait for the same until it was there. */
static uint32_t ask_patiently(const struct sublet_credit_question* question, struct files* files) {
  static uint32_t last_result;
  const uint32_t last = __atomic_load_n(&last_result, __ATOMIC_RELAXED);
  const int64_t until = read_clock() + (last == NO_DAEMON ? 0 : TIME_TO_WAIT);
  const int waits_for_descriptor = question->kind == SUBLET_CREDIT_MORE && last != NO_DESCRIPTOR;
  uint32_t result;
  for (int unanswered = 0;;) {
    result = ask(question, files, until, TIME_TO_WAIT);
    const int is_worth_it = result == NO_DAEMON || (result == NO_ANSWER && files->count == 0 && unanswered++ == 0) ||
                            (result == NO_DESCRIPTOR && waits_for_descriptor);
    const int64_t next = read_clock() + PAUSE;
    if (!is_worth_it || next >= until) break;
    pause_until(next);
  }
  __atomic_store_n(&last_result, result, __ATOMIC_RELAXED);
  return result;
}

/* --- the beginning */

/* A file of at least this size that cannot become smaller; without that, reading it may end the program. */
static void* map_page(int file, long size, int protection) {
  struct stat about;
  if (sublet_kernel(SYS_fstat, file, (long)&about, 0, 0, 0, 0) != 0 || about.st_size < size) return NULL;
  const long seals = sublet_kernel(SYS_fcntl, file, F_GET_SEALS, 0, 0, 0, 0);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return NULL;
  const long mapped = sublet_kernel(SYS_mmap, 0, size, protection, MAP_SHARED, file, 0);
  return mapped < 0 && mapped > -4096 ? NULL : (void*)mapped;
}

/* A daemon that has started again hands out another share page, unless it has kept the earlier one. Threads may still
 * use the earlier page, so that it stays mapped. */
static void begin_share(int file) {
  static dev_t device;
  static ino_t inode;
  struct stat about;
  if (sublet_kernel(SYS_fstat, file, (long)&about, 0, 0, 0, 0) != 0) return;
  if (sublet_has_share() && about.st_dev == device && about.st_ino == inode) return;
  struct sublet_share_page* page = map_page(file, sizeof *page, PROT_READ | PROT_WRITE);
  if (page == NULL) return;
  if (sublet_adopt_share(page)) device = about.st_dev, inode = about.st_ino;
  else sublet_kernel(SYS_munmap, (long)page, sizeof *page, 0, 0, 0, 0);
}

/* Asks for pages and gives them to `take`. 0: there are none. -1: there was no free descriptor for them. */
static int ask_for_pages(int (*take)(const struct sublet_limit_page*, struct sublet_use_page*)) {
  struct files files = {0, {-1, -1, -1}, 0};
  const struct sublet_credit_question question = {sizeof question, SUBLET_CREDIT_ABI, SUBLET_CREDIT_BEGIN, 0, 0};
  const uint32_t result = ask_patiently(&question, &files);
  int taken = result == NO_DESCRIPTOR || files.is_cut ? -1 : 0;
  if (taken == 0 && result == SUBLET_CREDIT_GRANTED && files.count >= 2) {
    struct sublet_limit_page* limit = map_page(files.file[0], sizeof *limit, PROT_READ);
    struct sublet_use_page* use = map_page(files.file[1], sizeof *use, PROT_READ | PROT_WRITE);
    taken = limit != NULL && use != NULL && take(limit, use);
    if (taken && files.count == MOST_FILES) begin_share(files.file[2]);
    if (!taken && limit != NULL) sublet_kernel(SYS_munmap, (long)limit, sizeof *limit, 0, 0, 0, 0);
    if (!taken && use != NULL) sublet_kernel(SYS_munmap, (long)use, sizeof *use, 0, 0, 0, 0);
  }
  close_files(&files);
  return taken;
}

static void begin(void) {
  const int is_found = find_daemon(&daemon_place);
  const int is_begun = is_found > 0 ? ask_for_pages(sublet_adopt) : is_found;
  if (is_begun <= 0) daemon_place.sun_path[0] = '\0';
  __atomic_store_n(&is_put_off, is_begun < 0, __ATOMIC_RELEASE);
}

/* A process that had no free descriptor asks again in its later calls, once in a second. -> whether it has its limits
 * now. Memory that it took before is not charged. */
int sublet_begin_late(void) {
  static uint64_t next;
  if (!__atomic_load_n(&is_put_off, __ATOMIC_ACQUIRE)) return 0;
  const uint64_t now = (uint64_t)read_clock();
  uint64_t then = __atomic_load_n(&next, __ATOMIC_RELAXED);
  if (now < then || begun_pid != (int32_t)sublet_kernel(SYS_getpid, 0, 0, 0, 0, 0, 0)) return 0;
  if (!__atomic_compare_exchange_n(&next, &then, now + SECOND, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 0;
  int32_t begun = BEGUN;
  if (!__atomic_compare_exchange_n(&beginning, &begun, begun_pid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 0;
  if (!sublet_is_limited()) begin();
  __atomic_store_n(&beginning, BEGUN, __ATOMIC_RELEASE);
  return sublet_is_limited();
}

/* No thread goes on before the process has its limits. A child that was forked meanwhile begins for itself. */
void sublet_begin_limit(void) {
  const int32_t self = (int32_t)sublet_kernel(SYS_getpid, 0, 0, 0, 0, 0, 0);
  for (;;) {
    int32_t now = __atomic_load_n(&beginning, __ATOMIC_ACQUIRE);
    const int32_t begun = __atomic_load_n(&begun_pid, __ATOMIC_ACQUIRE);
    if (now == BEGUN && (begun == 0 || begun == self)) return;
    if (now == self) {
      sublet_kernel(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
      continue;
    }
    if (__atomic_compare_exchange_n(&beginning, &now, self, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) break;
  }
  if (begun_pid != 0 && begun_pid != self) {
    sublet_drop();
    __atomic_store_n(&is_put_off, 0, __ATOMIC_RELEASE);
  }
  if (!sublet_is_limited() && begun_pid != self) {
    begin();
    __atomic_store_n(&begun_pid, self, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&beginning, BEGUN, __ATOMIC_RELEASE);
}

static uint32_t ask_for_more(uint32_t account, uint64_t needed) {
  const struct sublet_credit_question question = {sizeof question, SUBLET_CREDIT_ABI, SUBLET_CREDIT_MORE, account,
                                                  needed};
  for (;;) {
    struct files files = {0, {-1, -1, -1}, 0};
    const uint32_t result = ask_patiently(&question, &files);
    close_files(&files);
    if (result != SUBLET_CREDIT_PAUSED) return result;
    pause_until(read_clock() + PAUSE);
  }
}

static uint32_t times_begun;
/* 1: the daemon may have given pages that never came here. It grants more on those then, so that it is not asked for
 * more before the process has begun again. */
static uint32_t must_begin;

/* The daemon knows the pages that it gave last, so that one thread asks for them and takes them. Others wait, and go by
 * what that thread got. -> 0: there are none */
static int begin_again(uint32_t before) {
  static uint32_t is_busy;
  uint32_t no = 0;
  while (!__atomic_compare_exchange_n(&is_busy, &no, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    sublet_kernel(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    no = 0;
  }
  if (__atomic_load_n(&times_begun, __ATOMIC_ACQUIRE) == before) {
    __atomic_store_n(&must_begin, ask_for_pages(sublet_move) <= 0, __ATOMIC_RELEASE);
    __atomic_fetch_add(&times_begun, 1, __ATOMIC_RELEASE);
  }
  const int is_begun = !__atomic_load_n(&must_begin, __ATOMIC_ACQUIRE);
  __atomic_store_n(&is_busy, 0, __ATOMIC_RELEASE);
  return is_begun;
}

static int has_begun_here(void) { return begun_pid == (int32_t)sublet_kernel(SYS_getpid, 0, 0, 0, 0, 0, 0); }

/* A daemon that has started again does not know our pages: we begin again with it, and ask once more. While we wait, it
 * may start again several times. */
int sublet_ask_for_credit(int account, uint64_t needed) {
  if (account < 0 || daemon_place.sun_path[0] == '\0') return 0;
  uint32_t result = SUBLET_CREDIT_UNKNOWN;
  for (int i = 0; i < MOST_BEGINNINGS; ++i) {
    const uint32_t before = __atomic_load_n(&times_begun, __ATOMIC_ACQUIRE);
    const int may_ask = !__atomic_load_n(&must_begin, __ATOMIC_ACQUIRE);
    result = may_ask ? ask_for_more((uint32_t)account, needed) : SUBLET_CREDIT_UNKNOWN;
    if (result != SUBLET_CREDIT_UNKNOWN || !has_begun_here()) break;
    if (!begin_again(before)) return -1;
  }
  if (result >= NO_ANSWER) return -1;
  return result == SUBLET_CREDIT_GRANTED;
}

/* A process that needs no more memory would not notice that the daemon has started again, and its counts and its share
 * would not be seen any more. So a launch asks for nothing at times. */
int sublet_look_at_daemon(int account, uint64_t now) {
  static uint64_t next;
  uint64_t then = __atomic_load_n(&next, __ATOMIC_RELAXED);
  if (now < then || account < 0 || daemon_place.sun_path[0] == '\0') return 0;
  if (!__atomic_compare_exchange_n(&next, &then, now + LOOK_AGAIN, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 0;
  if (!has_begun_here()) return 0;
  struct files files = {0, {-1, -1, -1}, 0};
  const struct sublet_credit_question question = {sizeof question, SUBLET_CREDIT_ABI, SUBLET_CREDIT_MORE,
                                                  (uint32_t)account, 0};
  const uint32_t before = __atomic_load_n(&times_begun, __ATOMIC_ACQUIRE);
  const uint32_t result = ask(&question, &files, read_clock() + TIME_OF_LAUNCH, TIME_OF_LAUNCH);
  close_files(&files);
  const int has_answered = result < NO_ANSWER;
  if (result == SUBLET_CREDIT_UNKNOWN || (has_answered && __atomic_load_n(&must_begin, __ATOMIC_ACQUIRE)))
    begin_again(before);
  return 1;
}
