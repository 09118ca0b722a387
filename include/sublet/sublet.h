/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For cooperative programs: a program frees its GPU memory when the daemon tells it to yield, and takes the memory
 * again when the daemon resumes it.
 *
 * Link with -lsublet (or its static archive, and -lpthread). Nothing else is needed. Without a lease or a daemon,
 * sublet_register() returns an error, and the program runs as if it had not called it.
 *
 *   static int on_pause(void *context, struct sublet_request *request) { free_my_vram(); return 0; }
 *   static int on_resume(void *context) { return take_my_vram_again(); }
 *
 *   struct sublet_callbacks callbacks = SUBLET_CALLBACKS_INIT;
 *   callbacks.on_pause = on_pause;
 *   callbacks.on_resume = on_resume;
 *   callbacks.residue_bytes = 512 << 20;        // VRAM of the CUDA context
 *   sublet_register(&callbacks);
 *   for (;;) { sublet_safe_point(); work(); }    // pauses happen in sublet_safe_point()
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

/* The results of the functions. sublet_error() has a sentence for people. */
enum sublet_result {
  SUBLET_OK = 0,
  SUBLET_NO_LEASE = 1,  /* SUBLET_LEASE is not set, so no orders will come */
  SUBLET_NO_DAEMON = 2, /* the daemon of SUBLET_HOST does not answer */
  SUBLET_REFUSED = 3,   /* another process of the program has registered, or this process is not of the lease */
  SUBLET_USAGE = 4,     /* a callback is missing, or the call is not allowed now */
  SUBLET_FAILED = 5     /* no memory, or no thread can be started */
};

/* An order to yield. */
struct sublet_request {
  size_t size;             /* size of this struct in the library */
  uint64_t number;         /* number of the order, as in the daemon's log and in `sublet why` */
  double deadline_seconds; /* from now on; a later program is resumed, and another method is tried */
  uint64_t residue_bytes;  /* declared residue on each device */
  const char* reason;      /* one sentence, valid during the call */
  char detail[256];        /* set by the callback: why the program does not yield */
};

struct sublet_callbacks {
  size_t size; /* sizeof(struct sublet_callbacks) */
  /*
   * Frees VRAM down to the residue and returns 0. Then the program may not submit work to the device until on_resume is
   * called. Any other result: the program does not yield now, and keeps all its memory.
   */
  int (*on_pause)(void* context, struct sublet_request* request);
  /*
   * Takes the VRAM again, which is reserved for the program. Returns 0 if the program runs. After any other result it
   * is called again a second later. It is only called after an on_pause that returned 0. It is also called when the
   * lease ends during a pause. Then no memory is reserved, and it may fail until other programs have freed theirs.
   */
  int (*on_resume)(void* context);
  void* context;
  uint64_t residue_bytes; /* VRAM that the program keeps on each device during a pause, contexts included */
  int own_thread;         /* 0: callbacks run inside sublet_safe_point(); else on the library's thread, at any time */
};
#define SUBLET_CALLBACKS_INIT \
  { sizeof(struct sublet_callbacks), NULL, NULL, NULL, 0, 0 }

/*
 * Registers this process as the one that yields for the whole program of the lease. A program has one such process.
 * Copies the callbacks and starts a thread, which talks to the daemon until the lease ends, restarts of the daemon
 * included. A second call changes nothing and returns SUBLET_USAGE. After a fork the child is not registered.
 */
SUBLET_API int sublet_register(const struct sublet_callbacks* callbacks);

/*
 * A place where the program can be paused. Without an order it returns 0 at once, at the cost of reading a variable.
 * After an order to yield it runs on_pause, waits for the resume order or the end of the lease, runs on_resume and
 * returns 1. The wait may be long. The first thread that gets here runs the callbacks; other threads wait for it.
 */
SUBLET_API int sublet_safe_point(void);

/* Returns 1 from the moment when on_pause returned 0 until on_resume returns 0; else 0. */
SUBLET_API int sublet_paused(void);

/* Declares the residue, in bytes on each device, for later pauses. */
SUBLET_API int sublet_declare_residue(uint64_t bytes);

/*
 * Ends the registration: the program is not cooperative any more. Returns SUBLET_USAGE while the program is paused or
 * told to yield; try again when it runs. After any result other than SUBLET_OK the program is still registered.
 */
SUBLET_API int sublet_unregister(void);

/* Returns why the last call on this thread failed; "" if it succeeded. Valid until the next call on this thread. */
SUBLET_API const char* sublet_error(void);

#ifdef __cplusplus
}
#endif

#endif
