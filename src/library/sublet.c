/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One registration of one process. A thread of ours asks the daemon for orders; the callbacks run on the thread that
 * reaches a safe point, or on ours. The mutex guards all of `all`, and is never held while a callback or a call to the
 * daemon is under way.
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
  RUNNING,  /* nothing is asked */
  ASKED,    /* to yield, at the next safe point */
  YIELDING, /* on_pause runs */
  PAUSED,   /* it has yielded */
  RESUMING  /* on_resume runs */
};

enum { ANSWER_TIMEOUT_MS = 10000, POLL_SECONDS = 50, FIRST_WAIT_MS = 100, LONGEST_WAIT_MS = 5000, RETRY_MS = 1000 };

/* A daemon that has just come back may not know yet whose process this is: so often in a row it means it. */
enum { MOST_DENIALS = 6 };

static struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int registered;
  int stop;
  pid_t pid; /* of the process that registered */
  pthread_t thread;
  int wake; /* eventfd: what the thread waits for is to be looked at anew */
  struct sublet_callbacks callbacks;
  char socket[108];
  char lease[64];

  enum phase phase;
  uint64_t yield_number;  /* that is asked, or was */
  uint64_t resume_number; /* told, and not answered; 0: none */
  int over;               /* the lease is no more: nothing will be asked, and nobody will say that it may go on */
  double deadline;
  char reason[512];
  uint64_t unsent_number; /* an answer that did not reach the daemon; 0: none */
  const char* unsent_word;
  char unsent_detail[256];
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .wake = -1};

/* Read at each safe point, without the mutex: something is to be done there. */
static atomic_int attention;

/* The mutex is held. It is free while the daemon is told something: another order may have come meanwhile. */
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

/* What the daemon said when it refused; the detail of its problem document. */
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

/* 1: the daemon knows, or does not want to know any more. */
static int call_answer(uint64_t number, const char* word, const char* detail) {
  char path[160], body[768], escaped[520];
  struct http_reply reply;
  target(path, sizeof path, "/answer");
  json_escape(detail, escaped, sizeof escaped);
  snprintf(body, sizeof body, "{\"number\":%" PRIu64 ",\"answer\":\"%s\",\"detail\":\"%s\"}", number, word, escaped);
  const int status = http_call(all.socket, "POST", path, body, ANSWER_TIMEOUT_MS, -1, &reply);
  return status != 0 && status < 500;
}

/* Says it now; what does not get through is said once the daemon is there again. */
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

/* ---------------------------------------------------------------------------------------------- yielding and going on
 */

/* The mutex is held at its begin and end, and not in between. 1: it has yielded. */
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
  /* Told to go on meanwhile: that is what is answered, and not what nobody waits for any more. */
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

/* As above; 0: it does not run yet. */
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
  if (number != 0) say(number, "resumed", ""); /* else nobody has asked: its lease is over */
  pthread_mutex_lock(&all.mutex);
  return 1;
}

static void wait_ms(int fd, int milliseconds) {
  struct pollfd entry = {fd, POLLIN, 0};
  (void)poll(&entry, fd >= 0 ? 1 : 0, milliseconds);
}

/* The mutex is held, but while something is waited for. */
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
    if (paused) { /* and so until it goes on here: on this thread alone */
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

/* ---------------------------------------------------------------------------------------------- our thread */

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
  if (all.phase == ASKED) { /* it has not begun, and need not any more */
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

/* Its lease has ended, or is another's: whoever is paused would wait for ever to be told that it may go on. */
static void told_that_it_is_over(void) {
  pthread_mutex_lock(&all.mutex);
  all.over = 1;
  if (all.phase == ASKED) { /* nobody waits for that any more */
    all.phase = RUNNING;
    look_again();
  }
  pthread_cond_broadcast(&all.changed);
  if (all.phase == PAUSED && all.callbacks.own_thread) go_on();
  pthread_mutex_unlock(&all.mutex);
}

/*
 * 1: goes on; 0: it is to be asked again later; -1: nothing more will be asked. Whoever goes on for anything less than
 * that takes VRAM that others may have: so only what says that the lease is no more, or is another's, counts as that.
 */
static int ask_once(uint64_t* since, int* denials) {
  char path[200], rest[80];
  static struct http_reply reply; /* of this thread alone */
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

/* The program's signals are for its own threads. */
static int start_thread(void) {
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  const int problem = pthread_create(&all.thread, NULL, ask_for_orders, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return problem == 0;
}

/* ---------------------------------------------------------------------------------------------- the rest of the
 * outside */

/* "lease-7", or a tag: what stands in a path is no more than letters, digits and . _ - + */
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
  /* A child of the process that registered has that one's memory, and not its thread. */
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

/* Nothing is to be told to this process any more, or its lease is no more. */
static int is_withdrawn(const struct http_reply* reply) {
  char code[32];
  json_text(json_member(reply->body, "code"), code, sizeof code);
  return reply->status == 200 || reply->status == 404 || (reply->status == 409 && strcmp(code, "Stale") == 0);
}

/* The daemon knows whether an order is on its way here: the thread asks for it as long as there may be one. */
int sublet_unregister(void) {
  char path[160];
  struct http_reply reply;
  pthread_mutex_lock(&all.mutex);
  const int mine = all.registered && all.pid == getpid() && !all.stop;
  const int away = all.phase != RUNNING;
  const int over = all.over; /* the thread has ended: nobody asks any more, whatever the daemon says */
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
  const int last = all.stop == 0; /* else another thread does the rest */
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
