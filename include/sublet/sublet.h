/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that frees its own GPU memory when it is asked to, and takes it again when it may go on.
 *
 * Link with -lsublet (or its static archive, and -lpthread). It needs nothing else: where there is no lease or no
 * daemon, sublet_register() says so and the program runs on as if it had never called it.
 *
 *   static int on_pause(void *context, struct sublet_request *request) { free_my_vram(); return 0; }
 *   static int on_resume(void *context) { return take_my_vram_again(); }
 *
 *   struct sublet_callbacks callbacks = SUBLET_CALLBACKS_INIT;
 *   callbacks.on_pause = on_pause;
 *   callbacks.on_resume = on_resume;
 *   callbacks.residue_bytes = 512 << 20;        // what the CUDA context keeps
 *   sublet_register(&callbacks);
 *   for (;;) { sublet_safe_point(); work(); }    // is paused inside of sublet_safe_point()
 *
 * C11 and C++. All functions may be called on any thread.
 */
#ifndef SUBLET_SUBLET_H
#define SUBLET_SUBLET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SUBLET_API __attribute__((visibility("default")))
#else
#define SUBLET_API
#endif

/* What the functions return. sublet_error() has a sentence for people. */
enum sublet_result {
  SUBLET_OK = 0,
  SUBLET_NO_LEASE = 1,  /* not under a lease (SUBLET_LEASE is not set): nobody will ask for anything */
  SUBLET_NO_DAEMON = 2, /* the daemon of SUBLET_HOST does not answer */
  SUBLET_REFUSED = 3,   /* it said no: another process of the program has registered, or this one is not of the lease */
  SUBLET_USAGE = 4,     /* a callback is missing, or the call makes no sense now */
  SUBLET_FAILED = 5     /* no memory, or no thread */
};

/* That the program is asked to yield. */
struct sublet_request {
  size_t size;             /* of this struct, as the library knows it */
  uint64_t number;         /* of the order, as the daemon's log and `sublet why` count them */
  double deadline_seconds; /* from now on; who yields later is told to go on, and another way is tried */
  uint64_t residue_bytes;  /* what was said that the program keeps on each device */
  const char* reason;      /* one sentence, valid during the call */
  char detail[256];        /* why it does not yield, if it does not: to be filled in by the callback */
};

struct sublet_callbacks {
  size_t size; /* sizeof(struct sublet_callbacks) */
  /*
   * Frees VRAM down to the residue, and returns 0 once that is done: nothing may be submitted to the device until
   * on_resume has been called. Anything else: it does not yield now, and keeps all it had.
   */
  int (*on_pause)(void* context, struct sublet_request* request);
  /*
   * Takes the VRAM again: its room is reserved. 0: it runs. Anything else: it is called again, a second later.
   * Never called without an on_pause that returned 0 before it. Called as well when the lease ends while the program is
   * paused: then nothing is reserved for it, others may have the room, and it can fail for that until they have left.
   */
  int (*on_resume)(void* context);
  void* context;
  uint64_t residue_bytes; /* what the program keeps on each of its devices while it is paused, contexts included */
  int own_thread; /* 0: the callbacks run inside of sublet_safe_point(); else on a thread of the library, at any time */
};
#define SUBLET_CALLBACKS_INIT \
  { sizeof(struct sublet_callbacks), NULL, NULL, NULL, 0, 0 }

/*
 * Says that this process yields by itself, for the whole program that has the lease: one process of a program does so.
 * Copies the callbacks and starts a thread, which stays in touch with the daemon (over its restarts too) until the
 * lease ends. A second call changes nothing and is refused: SUBLET_USAGE. After a fork the child has not registered.
 */
SUBLET_API int sublet_register(const struct sublet_callbacks* callbacks);

/*
 * A place where the program can be paused. Nothing is asked: returns at once, for the price of reading a variable.
 * Otherwise runs on_pause, waits until the program may go on, however long, or until its lease has ended, runs
 * on_resume, and returns 1. The first thread that gets here is the one that is paused; others wait for it.
 */
SUBLET_API int sublet_safe_point(void);

/* 1 from the moment on_pause returned 0 until on_resume did; else 0. */
SUBLET_API int sublet_paused(void);

/* The program keeps so much on each of its devices from now on when it is paused. */
SUBLET_API int sublet_declare_residue(uint64_t bytes);

/*
 * The program no longer yields by itself. Not while it is paused, or asked to yield: SUBLET_USAGE; once it has done
 * that and runs again it may. Where this returns anything but SUBLET_OK it is registered as before.
 */
SUBLET_API int sublet_unregister(void);

/* Why the last call on this thread did not return SUBLET_OK; "" if it did. Valid until the next call on this thread. */
SUBLET_API const char* sublet_error(void);

#ifdef __cplusplus
}
#endif

#endif
