/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registration of this process. The library's thread asks the daemon for orders. The callbacks run on the thread
 * that reaches a safe point, or on the library's thread. The mutex guards all of `all`. It is never held during a
 * callback, nor during the calls that carry orders and answers.
 */
#include "http.h"

#include <sublet/sublet.h>

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum phase {
  RUNNING,  /* no order to yield */
  ASKED,    /* told to yield at the next safe point */
  YIELDING, /* on_pause runs */
  PAUSED,   /* on_pause returned 0 */
  RESUMING  /* on_resume runs */
};

enum { ANSWER_TIMEOUT_MS = 10000, POLL_SECONDS = 50, FIRST_WAIT_MS = 100, LONGEST_WAIT_MS = 5000, RETRY_MS = 1000 };

/* A restarted daemon may not know yet that this process belongs to the lease. So many denials in a row are final. */
enum { MOST_DENIALS = 6 };

static struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int registered;
  int stop;
  pid_t pid; /* the process that registered */
  pthread_t thread;
  int wake; /* eventfd that interrupts the wait of the thread */
  struct sublet_callbacks callbacks;
  char socket[108];
  char lease[64];

  enum phase phase;
  uint64_t yield_number;  /* number of the last order to yield */
  uint64_t resume_number; /* number of an unanswered resume order; 0: none */
  int over;               /* the lease has ended, so no more orders will come */
  double deadline;
  char reason[512];
  uint64_t unsent_number; /* order whose answer did not reach the daemon; 0: none */
  const char* unsent_word;
  char unsent_detail[256];
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .wake = -1};

/* Read at each safe point, without the mutex: 1 if the safe point has work to do. */
static atomic_int attention;

/* Call with the mutex. It is free during calls to the daemon, so another order may have come meanwhile. */
static void look_again(void) { atomic_store_explicit(&attention, all.phase != RUNNING, memory_order_release); }

static _Thread_local char error_text[512];

static int fail(int code, const char* text) {
  snprintf(error_text, sizeof error_text, "%s", text);
  return code;
}

static int succeed(void) {
  error_text[0] = '\0';
  return SUBLET_OK;
}

/* ---------------------------------------------------------------------------------------------- calls */

static void target(char* into, size_t size, const char* rest) {
  snprintf(into, size, "/v1/leases/%s/cooperate%s", all.lease, rest);
}

/* Keeps the detail of the daemon's problem document as the error text. */
static int refused(const struct http_reply* reply) {
  char detail[400];
  json_text(json_member(reply->body, "detail"), detail, sizeof detail);
  snprintf(error_text, sizeof error_text, "the daemon refused the request (%d): %s", reply->status, detail);
  return SUBLET_REFUSED;
}

static int call_register(uint64_t residue) {
  char path[160], body[128];
  struct http_reply reply;
  target(path, sizeof path, "");
  snprintf(body, sizeof body, "{\"way\":\"poll\",\"residue_bytes\":%" PRIu64 "}", residue);
  const int status = http_call(all.socket, "POST", path, body, ANSWER_TIMEOUT_MS, -1, &reply);
  if (status == 0) return fail(SUBLET_NO_DAEMON, "the daemon does not answer");
  return status == 200 ? succeed() : refused(&reply);
}

/* 1: the daemon has the answer, or does not need it any more. */
static int call_answer(uint64_t number, const char* word, const char* detail) {
  char path[160], body[768], escaped[520];
  struct http_reply reply;
  target(path, sizeof path, "/answer");
  json_escape(detail, escaped, sizeof escaped);
  snprintf(body, sizeof body, "{\"number\":%" PRIu64 ",\"answer\":\"%s\",\"detail\":\"%s\"}", number, word, escaped);
  const int status = http_call(all.socket, "POST", path, body, ANSWER_TIMEOUT_MS, -1, &reply);
  return status != 0 && status < 500;
}

/* Sends the answer. If the daemon is away, the answer is sent when it is back. */
static void say(uint64_t number, const char* word, const char* detail) {
  if (call_answer(number, word, detail)) return;
  pthread_mutex_lock(&all.mutex);
  all.unsent_number = number;
  all.unsent_word = word;
  snprintf(all.unsent_detail, sizeof all.unsent_detail, "%s", detail);
  pthread_mutex_unlock(&all.mutex);
}

static int say_unsent(void) {
  pthread_mutex_lock(&all.mutex);
  const uint64_t number = all.unsent_number;
  const char* word = all.unsent_word;
  char detail[sizeof all.unsent_detail];
  memcpy(detail, all.unsent_detail, sizeof detail);
  pthread_mutex_unlock(&all.mutex);
  if (number == 0) return 1;
  if (!call_answer(number, word, detail)) return 0;
  pthread_mutex_lock(&all.mutex);
  if (all.unsent_number == number) all.unsent_number = 0;
  pthread_mutex_unlock(&all.mutex);
  return 1;
}

/* ---------------------------------------------------------------------------------------------- yield and resume */

/* Call with the mutex, which is released in between. 1: the program has yielded. */
static int run_pause(void) {
  struct sublet_request request;
  char reason[sizeof all.reason];
  memset(&request, 0, sizeof request);
  memcpy(reason, all.reason, sizeof reason);
  request.size = sizeof request;
  request.number = all.yield_number;
  request.deadline_seconds = all.deadline;
  request.residue_bytes = all.callbacks.residue_bytes;
  request.reason = reason;
  all.phase = YIELDING;
  pthread_mutex_unlock(&all.mutex);
  const int refuses = all.callbacks.on_pause(all.callbacks.context, &request);
  request.detail[sizeof request.detail - 1] = '\0';
  pthread_mutex_lock(&all.mutex);
  all.phase = refuses ? RUNNING : PAUSED;
  /* If a resume order came meanwhile, that order is answered; the order to yield is void. */
  const uint64_t overtaken = all.resume_number;
  if (refuses) {
    all.resume_number = 0;
    look_again();
  }
  pthread_mutex_unlock(&all.mutex);
  if (overtaken == 0) say(request.number, refuses ? "refused" : "yielded", refuses ? request.detail : "");
  else if (refuses) say(overtaken, "resumed", "");
  pthread_mutex_lock(&all.mutex);
  return !refuses;
}

/* Call with the mutex, which is released in between. 0: on_resume failed. */
static int run_resume(void) {
  all.phase = RESUMING;
  pthread_mutex_unlock(&all.mutex);
  const int runs = all.callbacks.on_resume(all.callbacks.context) == 0;
  pthread_mutex_lock(&all.mutex);
  all.phase = runs ? RUNNING : PAUSED;
  if (!runs) return 0;
  const uint64_t number = all.resume_number;
  all.resume_number = 0;
  look_again();
  pthread_cond_broadcast(&all.changed);
  pthread_mutex_unlock(&all.mutex);
  if (number != 0) say(number, "resumed", ""); /* 0: no order, because the lease has ended */
  pthread_mutex_lock(&all.mutex);
  return 1;
}

static void wait_ms(int fd, int milliseconds) {
  struct pollfd entry = {fd, POLLIN, 0};
  (void)poll(&entry, fd >= 0 ? 1 : 0, milliseconds);
}

/* Call with the mutex, which is released while waiting. */
static void go_on(void) {
  while (!run_resume()) {
    pthread_mutex_unlock(&all.mutex);
    wait_ms(-1, RETRY_MS);
    pthread_mutex_lock(&all.mutex);
  }
}

int sublet_safe_point(void) {
  if (atomic_load_explicit(&attention, memory_order_acquire) == 0) return 0;
  pthread_mutex_lock(&all.mutex);
  if (!all.registered || all.pid != getpid() || all.callbacks.own_thread) {
    pthread_mutex_unlock(&all.mutex);
    return 0;
  }
  int paused = 0;
  if (all.phase == ASKED) {
    paused = run_pause();
    if (paused) { /* only this thread ends the pause */
      while (all.resume_number == 0 && !all.over) pthread_cond_wait(&all.changed, &all.mutex);
      go_on();
    }
    pthread_cond_broadcast(&all.changed);
  } else {
    while (all.phase != RUNNING && all.phase != ASKED) {
      paused = 1;
      pthread_cond_wait(&all.changed, &all.mutex);
    }
  }
  pthread_mutex_unlock(&all.mutex);
  return paused;
}

/* ---------------------------------------------------------------------------------------------- the library's thread
 */

static void told_to_yield(uint64_t number, double deadline, const char* body) {
  pthread_mutex_lock(&all.mutex);
  const int paused = all.phase == PAUSED;
  if (all.phase == RUNNING || all.phase == ASKED) {
    all.yield_number = number;
    all.deadline = deadline;
    json_text(json_member(body, "reason"), all.reason, sizeof all.reason);
    all.phase = ASKED;
    look_again();
    if (all.callbacks.own_thread) run_pause();
  }
  pthread_mutex_unlock(&all.mutex);
  if (paused) say(number, "yielded", "");
}

static void told_to_go_on(uint64_t number) {
  pthread_mutex_lock(&all.mutex);
  if (all.phase == ASKED) { /* the yield has not begun, and is not needed any more */
    all.phase = RUNNING;
    look_again();
  }
  const int runs = all.phase == RUNNING;
  if (!runs) all.resume_number = number;
  pthread_cond_broadcast(&all.changed);
  if (all.phase == PAUSED && all.callbacks.own_thread) go_on();
  pthread_mutex_unlock(&all.mutex);
  if (runs) say(number, "resumed", "");
}

/* The lease has ended, or belongs to others. A paused program would wait for ever for a resume order. */
static void told_that_it_is_over(void) {
  pthread_mutex_lock(&all.mutex);
  all.over = 1;
  if (all.phase == ASKED) { /* the yield is not needed any more */
    all.phase = RUNNING;
    look_again();
  }
  pthread_cond_broadcast(&all.changed);
  if (all.phase == PAUSED && all.callbacks.own_thread) go_on();
  pthread_mutex_unlock(&all.mutex);
}

/*
 * Asks the daemon for an order. 1: ask again; 0: ask again later; -1: no more orders will come. After -1 a paused
 * program takes VRAM that other leases may have. So only an answer that the lease has ended, or that it belongs to
 * others, counts as -1.
 */
static int ask_once(uint64_t* since, int* denials) {
  char path[200], rest[80];
  static struct http_reply reply; /* used by this thread only */
  snprintf(rest, sizeof rest, "?wait=%ds&since=%" PRIu64, POLL_SECONDS, *since);
  target(path, sizeof path, rest);
  const int status = http_call(all.socket, "GET", path, NULL, (POLL_SECONDS + 20) * 1000, all.wake, &reply);
  *denials = status == 403 ? *denials + 1 : 0;
  if (status == 404 || status == 409 || *denials >= MOST_DENIALS) return -1;
  if (status != 200) return 0;
  char order[16];
  json_text(json_member(reply.body, "order"), order, sizeof order);
  const char* number_at = json_member(reply.body, "number");
  const char* deadline_at = json_member(reply.body, "deadline_seconds");
  if (number_at == NULL) return 0;
  const uint64_t number = strtoull(number_at, NULL, 10);
  if (strcmp(order, "none") == 0 || number == *since) return 1;
  *since = number;
  if (strcmp(order, "yield") == 0)
    told_to_yield(number, deadline_at == NULL ? 0 : strtod(deadline_at, NULL), reply.body);
  else if (strcmp(order, "resume") == 0) told_to_go_on(number);
  return 1;
}

static int stopped(void) {
  pthread_mutex_lock(&all.mutex);
  const int stop = all.stop;
  pthread_mutex_unlock(&all.mutex);
  return stop;
}

static void* ask_for_orders(void* nothing) {
  uint64_t since = 0;
  int denials = 0; /* in a row */
  int pause_ms = FIRST_WAIT_MS;
  while (!stopped()) {
    const int asked = say_unsent() ? ask_once(&since, &denials) : 0;
    if (asked < 0) {
      told_that_it_is_over();
      break;
    }
    if (asked > 0) {
      pause_ms = FIRST_WAIT_MS;
      continue;
    }
    if (stopped()) break;
    wait_ms(all.wake, pause_ms);
    pause_ms = pause_ms * 2 > LONGEST_WAIT_MS ? LONGEST_WAIT_MS : pause_ms * 2;
  }
  return nothing;
}

/* The thread blocks all signals, which are for the program's own threads. */
static int start_thread(void) {
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  const int problem = pthread_create(&all.thread, NULL, ask_for_orders, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return problem == 0;
}

/* ---------------------------------------------------------------------------------------------- public functions */

/* Whether the id ("lease-7") or tag is safe in a path: only letters, digits and . _ - + */
static int plain(const char* name) {
  if (*name == '\0' || strlen(name) >= sizeof all.lease) return 0;
  for (; *name != '\0'; ++name) {
    const char c = *name;
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("._-+", c) != NULL))
      return 0;
  }
  return 1;
}

static int find_daemon(void) {
  const char* lease = getenv("SUBLET_LEASE");
  const char* host = getenv("SUBLET_HOST");
  if (lease == NULL || *lease == '\0')
    return fail(SUBLET_NO_LEASE, "SUBLET_LEASE is not set: the program has no lease");
  if (!plain(lease)) return fail(SUBLET_USAGE, "SUBLET_LEASE is not a lease's id");
  const char* path = http_socket_of(host == NULL ? "unix:///run/sublet/sublet.sock" : host);
  if (path == NULL || strlen(path) >= sizeof all.socket) {
    return fail(SUBLET_NO_DAEMON, "SUBLET_HOST names no Unix socket, which cooperative programs need");
  }
  snprintf(all.socket, sizeof all.socket, "%s", path);
  snprintf(all.lease, sizeof all.lease, "%s", lease);
  return SUBLET_OK;
}

static int begin(const struct sublet_callbacks* callbacks) {
  /* A child of the registered process has a copy of its memory, but not its thread. */
  if (all.registered && all.pid == getpid()) return fail(SUBLET_USAGE, "the program is already registered");
  int result = find_daemon();
  if (result != SUBLET_OK) return result;
  all.callbacks = *callbacks;
  all.phase = RUNNING;
  all.stop = all.over = 0;
  all.resume_number = all.unsent_number = 0;
  atomic_store(&attention, 0);
  result = call_register(callbacks->residue_bytes);
  if (result != SUBLET_OK) return result;
  all.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (all.wake < 0 || !start_thread()) return fail(SUBLET_FAILED, "cannot start a thread");
  all.registered = 1;
  all.pid = getpid();
  return succeed();
}

int sublet_register(const struct sublet_callbacks* callbacks) {
  if (callbacks == NULL || callbacks->size != sizeof *callbacks)
    return fail(SUBLET_USAGE, "the callbacks have another version");
  if (callbacks->on_pause == NULL || callbacks->on_resume == NULL) return fail(SUBLET_USAGE, "a callback is missing");
  pthread_mutex_lock(&all.mutex);
  const int result = begin(callbacks);
  pthread_mutex_unlock(&all.mutex);
  return result;
}

int sublet_paused(void) {
  pthread_mutex_lock(&all.mutex);
  const int paused = all.registered && all.pid == getpid() && (all.phase == PAUSED || all.phase == RESUMING);
  pthread_mutex_unlock(&all.mutex);
  return paused;
}

int sublet_declare_residue(uint64_t bytes) {
  pthread_mutex_lock(&all.mutex);
  const int mine = all.registered && all.pid == getpid();
  pthread_mutex_unlock(&all.mutex);
  if (!mine) return fail(SUBLET_USAGE, "the program is not registered");
  const int result = call_register(bytes);
  if (result != SUBLET_OK) return result;
  pthread_mutex_lock(&all.mutex);
  all.callbacks.residue_bytes = bytes;
  pthread_mutex_unlock(&all.mutex);
  return result;
}

/* Whether this process is not registered any more, or its lease has ended. */
static int is_withdrawn(const struct http_reply* reply) {
  char code[32];
  json_text(json_member(reply->body, "code"), code, sizeof code);
  return reply->status == 200 || reply->status == 404 || (reply->status == 409 && strcmp(code, "Stale") == 0);
}

/* The daemon decides, because an order may be on its way. Until it agrees, the thread still asks for orders. */
int sublet_unregister(void) {
  char path[160];
  struct http_reply reply;
  pthread_mutex_lock(&all.mutex);
  const int mine = all.registered && all.pid == getpid() && !all.stop;
  const int away = all.phase != RUNNING;
  const int over = all.over; /* the thread has ended, so the daemon's answer does not matter */
  pthread_mutex_unlock(&all.mutex);
  if (!mine) return fail(SUBLET_USAGE, "the program is not registered");
  if (away) return fail(SUBLET_USAGE, "the program is paused or has a yield order");
  target(path, sizeof path, "");
  const int status = http_call(all.socket, "DELETE", path, NULL, ANSWER_TIMEOUT_MS, -1, &reply);
  if (status == 0 && !over) return fail(SUBLET_NO_DAEMON, "the daemon does not answer");
  if (!over && !is_withdrawn(&reply)) {
    return status == 409 ? fail(SUBLET_USAGE, "the program has a yield order and must yield first") : refused(&reply);
  }
  pthread_mutex_lock(&all.mutex);
  const int last = all.stop == 0; /* 0: another thread unregisters */
  all.stop = 1;
  pthread_mutex_unlock(&all.mutex);
  if (!last) return fail(SUBLET_USAGE, "the program is not registered");
  const uint64_t one = 1;
  if (write(all.wake, &one, sizeof one) != (ssize_t)sizeof one) return fail(SUBLET_FAILED, "cannot wake the thread");
  if (!pthread_equal(pthread_self(), all.thread)) pthread_join(all.thread, NULL);
  pthread_mutex_lock(&all.mutex);
  all.registered = 0;
  close(all.wake);
  all.wake = -1;
  pthread_mutex_unlock(&all.mutex);
  return succeed();
}

const char* sublet_error(void) { return error_text; }
