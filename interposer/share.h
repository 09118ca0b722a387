/* SPDX-License-Identifier: Apache-2.0 */
/* The share of the computing time: a launch waits until the earlier ones are paid. The cost of a launch is learned
 * from events around some of them. Nothing here has a lock, and a thread that waits holds nothing. */
#ifndef SUBLET_INTERPOSER_SHARE_H
#define SUBLET_INTERPOSER_SHARE_H

#include "limit.h"

/* --- share.c: the time that is paid, by account */

extern struct sublet_share_page* sublet_share; /* of the lease; NULL: launches never wait */

static inline int sublet_has_share(void) { return __atomic_load_n(&sublet_share, __ATOMIC_ACQUIRE) != NULL; }

/* Takes the share page of the lease, after the pages of the process. 0: of another version or of other devices. */
int sublet_adopt_share(struct sublet_share_page* page);
/* The process has no share page any more: it has its parent's. */
void sublet_drop_share(void);
/* Percent of a device's time; 0: no bound. */
uint32_t sublet_share_of(int account);
/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t sublet_clock(void);
void sublet_sleep(uint64_t nanoseconds);
/* Charges the cost of a launch, and waits until all is paid that was charged before, a minute at most. Launches begin
 * in the order of their arrival. Samples that come meanwhile correct what is paid. */
void sublet_pay(int account, uint64_t context, uint64_t cost, uint64_t now);
/* Charges more for launches that have begun, or gives back. */
void sublet_correct(int account, int64_t cost);
/* Counts time for which a launch has waited. */
void sublet_note_held(int account, uint64_t nanoseconds);

/* --- channel.c */

/* At launches: asks at times whether the daemon knows the process. A daemon that has started again gives it new pages.
 * 0: it was not time to ask */
int sublet_look_at_daemon(int account, uint64_t now);

/* --- samples.c: launches between two events */

struct sublet_stream {
  void* handle;
  int by_thread; /* 1: the default stream is that of the thread */
};

struct sublet_sample {
  uint32_t state; /* of samples.c */
  int32_t account;
  void *start, *end;         /* events; NULL: not made yet */
  struct sublet_slot* place; /* of the key in the table of costs */
  uint64_t charged;          /* for each launch that the sample stands for */
  uint64_t launches;         /* that the sample stands for, the measured one included */
  uint64_t gap;              /* the most that passed between event and launch */
  uint64_t is_idle;          /* the stream had nothing to do before */
};

/* Before the launch. NULL: this launch is not measured. The caller fills in the rest. */
struct sublet_sample* sublet_begin_sample(uint64_t context, const struct sublet_stream* stream);
/* 1: all samples of the context are in flight. */
int sublet_has_no_sample(uint64_t context);
/* After a launch that succeeded. 0: it is not measured after all. */
int sublet_end_sample(struct sublet_sample* sample, uint64_t context, const struct sublet_stream* stream);
/* After a launch that failed. */
void sublet_leave_sample(struct sublet_sample* sample);
/* Asks for the samples of a context that are done by now: all of them at times, or at once those of one key. */
void sublet_look_at_samples(uint64_t context, uint64_t now, const struct sublet_slot* wanted);
/* The context has ended, and its events with it. */
void sublet_end_samples(uint64_t context);

/* --- costs.c */

struct sublet_launch {
  int account;      /* NO_ACCOUNT: the launch is not bound by a share */
  int is_first;     /* the first launch of its key */
  uint64_t context;
  uint64_t now;     /* time, as it was last asked for */
  uint64_t cost;    /* that is charged */
  uint64_t guess;   /* of the cost, for a first launch that is not measured */
  struct sublet_slot* place;
  struct sublet_sample* sample;
  struct sublet_stream stream;
};

/* The key of a function and of the size of its launch. A graph has no size. */
uint64_t sublet_key_of(const void* function, uint64_t blocks, uint64_t threads);
/* Around a launch in the current context. `launch->account` is NO_ACCOUNT if no share binds it. */
void sublet_begin_launch(struct sublet_launch* launch, uint64_t key, struct sublet_stream stream);
void sublet_end_launch(struct sublet_launch* launch, int result);
/* Takes the time between the events of a sample. */
void sublet_learn(const struct sublet_sample* sample, uint64_t elapsed);
/* The time of a sample will never be known. */
void sublet_lose(const struct sublet_sample* sample);

#endif
