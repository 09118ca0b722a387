/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a device that is paid, one word for all processes of the lease. Launches are let through by the virtual
 * scheduling algorithm of ITU-T I.371 (GCRA), whose theoretical arrival time is the word `paid_until`. */
#include "share.h"
#include "kernel.h"

#include <time.h>

#define MILLISECOND ((uint64_t)1000000)
#define SECOND (1000 * MILLISECOND)
/* Unused time is kept for so long, so that a thread which wakes up late loses nothing. */
#define BURST (20 * MILLISECOND)
/* Nobody pays further ahead. A word that is further ahead, by more than clocks are read apart, was written by a process
 * that does not keep to this, and counts as paid. */
#define HORIZON (10 * SECOND)
#define FAR_AHEAD (HORIZON + SECOND)
/* Nobody waits longer for one launch, even if others of the lease always come first. */
#define MOST_WAIT (60 * SECOND)
/* A shorter sleep would cost more than it helps: the launches after it catch up. */
#define LEAST_SLEEP (MILLISECOND / 4)
#define MOST_SLEEP (100 * MILLISECOND)
#define MOST_COST (1000 * SECOND)
enum { TRIES = 1000, LEAST_GAIN = 250, MOST_GAIN = 4000 };

__attribute__((visibility("hidden"))) struct sublet_share_page* sublet_share;

EXPORTED int sublet_cuda_adopt_share(struct sublet_share_page* page);

typedef int (*clock_function)(clockid_t, struct timespec*);
static clock_function kernel_clock; /* looked for once, before launches */

uint64_t sublet_clock(void) {
  struct timespec now = {0, 0};
  const clock_function ask = __atomic_load_n(&kernel_clock, __ATOMIC_RELAXED);
  if (ask == NULL || ask(CLOCK_MONOTONIC, &now) != 0)
    sublet_kernel(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0, 0, 0);
  return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

void sublet_sleep(uint64_t nanoseconds) {
  const struct timespec pause = {(time_t)(nanoseconds / SECOND), (long)(nanoseconds % SECOND)};
  sublet_kernel(SYS_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
}

int sublet_adopt_share(struct sublet_share_page* page) {
  const uint32_t devices = __atomic_load_n(&page->devices, __ATOMIC_RELAXED);
  if (page->size != sizeof *page || page->abi != SUBLET_LIMIT_ABI || devices != sublet_accounts()) return 0;
  __atomic_store_n(&kernel_clock, (clock_function)sublet_kernel_clock(), __ATOMIC_RELAXED);
  __atomic_store_n(&sublet_share, page, __ATOMIC_RELEASE);
  return 1;
}

void sublet_drop_share(void) { __atomic_store_n(&sublet_share, NULL, __ATOMIC_RELEASE); }

/* Gives this process a share page, after sublet_cuda_adopt. The page stays with the caller, and several processes may
 * have it. 0: done; -1: another version, or not for the devices of this process. */
int sublet_cuda_adopt_share(struct sublet_share_page* page) {
  return sublet_is_limited() && sublet_adopt_share(page) ? 0 : -1;
}

uint32_t sublet_share_of(int account) {
  const struct sublet_limit_device* row = sublet_row_of(account);
  if (row == NULL || !sublet_has_share()) return 0;
  const uint32_t share = __atomic_load_n(&row->share, __ATOMIC_RELAXED);
  return share < 100 ? share : 0;
}

/* --- counts */

/* A thread that has found the earlier use page takes its amount along (counts.c). */
static void add(int account, size_t field, uint64_t amount) {
  while (amount != 0) {
    struct sublet_use_page* page = sublet_use_now();
    uint64_t* word = (uint64_t*)((char*)&page->device[account] + field);
    __atomic_fetch_add(word, amount, __ATOMIC_SEQ_CST);
    amount = page == sublet_use_now() ? 0 : __atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST);
  }
}

void sublet_note_held(int account, uint64_t nanoseconds) {
  add(account, offsetof(struct sublet_use_device, held), nanoseconds);
}

/* `busy` never becomes less: what is given back is taken from the next charges. */
static void note_busy(int account, int64_t nanoseconds) {
  static int64_t given_back[SUBLET_LIMIT_DEVICES];
  nanoseconds += __atomic_exchange_n(&given_back[account], 0, __ATOMIC_RELAXED);
  if (nanoseconds > 0) add(account, offsetof(struct sublet_use_device, busy), (uint64_t)nanoseconds);
  else if (nanoseconds < 0) __atomic_fetch_add(&given_back[account], nanoseconds, __ATOMIC_RELAXED);
}

/* --- charges */

static int64_t with_gain(int account, int64_t nanoseconds) {
  const struct sublet_limit_device* row = sublet_row_of(account);
  uint32_t gain = row != NULL ? __atomic_load_n(&row->gain, __ATOMIC_RELAXED) : 0;
  if (gain == 0) gain = 1000;
  if (gain < LEAST_GAIN) gain = LEAST_GAIN;
  if (gain > MOST_GAIN) gain = MOST_GAIN;
  const int64_t most = (int64_t)MOST_COST;
  if (nanoseconds > most) nanoseconds = most;
  if (nanoseconds < -most) nanoseconds = -most;
  return nanoseconds * (int64_t)gain / 1000;
}

static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t* word_of(int account) {
  struct sublet_share_page* page = __atomic_load_n(&sublet_share, __ATOMIC_ACQUIRE);
  return page != NULL ? &page->device[account].paid_until : NULL;
}

/* -> 0: earlier launches are not paid yet; else `price` is paid. Others that write all the time hold nobody up. */
static int try_to_pay(uint64_t* word, uint64_t now, uint64_t price, int in_any_case) {
  uint64_t there = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (int i = 0; i < TRIES; ++i) {
    const uint64_t paid = there > now + FAR_AHEAD ? now : there;
    if (paid > now && !in_any_case) return 0;
    const uint64_t then = earlier(later(paid, now - BURST) + price, now + HORIZON);
    if (__atomic_compare_exchange_n(word, &there, then, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 1;
  }
  return 1;
}

/* The limit page may change at any time, so that the share is read again after each sleep. A word that nobody has moved
 * for as long as one may pay ahead is wrong. */
void sublet_pay(int account, uint64_t context, uint64_t cost, uint64_t now) {
  const uint64_t began = now;
  uint64_t seen = 0, moved = now;
  const int64_t busy = with_gain(account, (int64_t)earlier(cost, MOST_COST));
  uint64_t* word = word_of(account);
  while (word != NULL) {
    const uint32_t share = sublet_share_of(account);
    const int in_any_case = now - moved >= HORIZON || now - began >= MOST_WAIT;
    if (share == 0 || try_to_pay(word, now, (uint64_t)busy * 100 / share, in_any_case)) break;
    const uint64_t paid = __atomic_load_n(word, __ATOMIC_RELAXED);
    if (paid != seen) seen = paid, moved = now;
    sublet_sleep(earlier(later(paid > now ? paid - now : 0, LEAST_SLEEP), MOST_SLEEP));
    now = sublet_clock();
    sublet_look_at_samples(context, now, NULL);
  }
  note_busy(account, busy);
  if (now != began) sublet_note_held(account, now - began);
}

void sublet_correct(int account, int64_t cost) {
  const uint32_t share = sublet_share_of(account);
  const int64_t busy = with_gain(account, cost);
  if (share == 0 || busy == 0) return;
  const uint64_t now = sublet_clock(), price = (uint64_t)(busy < 0 ? -busy : busy) * 100 / share;
  uint64_t* word = word_of(account);
  uint64_t there = word != NULL ? __atomic_load_n(word, __ATOMIC_RELAXED) : 0;
  for (int i = 0; word != NULL && i < TRIES; ++i) {
    const uint64_t paid = there > now + FAR_AHEAD ? now : there;
    const uint64_t less = paid > price ? paid - price : 0;
    const uint64_t then = busy < 0 ? less : earlier(paid + price, now + HORIZON);
    if (__atomic_compare_exchange_n(word, &there, then, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) break;
  }
  note_busy(account, busy);
}
