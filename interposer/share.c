/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a device that is paid, in a page of all processes of the lease. Launches are let through by the virtual
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
#define HORIZON (60 * SECOND)
#define FAR_AHEAD (HORIZON + SECOND)
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

/* Launches of the earlier page stay charged. */
static void bring_payments(const struct sublet_share_page* old, struct sublet_share_page* now) {
  for (uint32_t i = 0; i < sublet_accounts(); ++i) {
    const uint64_t paid = __atomic_load_n(&old->device[i].paid_until, __ATOMIC_ACQUIRE);
    uint64_t there = __atomic_load_n(&now->device[i].paid_until, __ATOMIC_RELAXED);
    for (int j = 0; j < TRIES && there < paid; ++j)
      if (__atomic_compare_exchange_n(&now->device[i].paid_until, &there, paid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        break;
  }
}

int sublet_adopt_share(struct sublet_share_page* page) {
  const uint32_t devices = __atomic_load_n(&page->devices, __ATOMIC_RELAXED);
  if (page->size != sizeof *page || page->abi != SUBLET_LIMIT_ABI || devices != sublet_accounts()) return 0;
  __atomic_store_n(&kernel_clock, (clock_function)sublet_kernel_clock(), __ATOMIC_RELAXED);
  struct sublet_share_page* old = __atomic_exchange_n(&sublet_share, page, __ATOMIC_ACQ_REL);
  if (old != NULL && old != page) bring_payments(old, page);
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

static struct sublet_share_device* row_of(int account) {
  struct sublet_share_page* page = __atomic_load_n(&sublet_share, __ATOMIC_ACQUIRE);
  return page != NULL ? &page->device[account] : NULL;
}

/* A time up to which launches are paid, as it is believed. */
static uint64_t believed(uint64_t word, uint64_t now) { return word > now + FAR_AHEAD ? now : word; }

/* Pays for a launch. -> the time at which it may begin: all is paid that was charged before. Others that write all the
 * time hold nobody up. */
static uint64_t pay_ahead(struct sublet_share_device* row, uint64_t now, uint64_t price) {
  uint64_t there = __atomic_load_n(&row->paid_until, __ATOMIC_RELAXED);
  for (int i = 0; i < TRIES; ++i) {
    const uint64_t begin = later(believed(there, now), now - BURST), then = earlier(begin + price, now + HORIZON);
    const int is_paid =
        __atomic_compare_exchange_n(&row->paid_until, &there, then, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    if (is_paid) return begin;
  }
  return now;
}

/* Corrections concern launches that have begun, and so come before all launches that wait. */
static uint64_t shifted(const struct sublet_share_device* row, uint64_t begin, uint64_t corrected) {
  const int64_t since = (int64_t)(__atomic_load_n(&row->corrected, __ATOMIC_ACQUIRE) - corrected);
  const int64_t most = (int64_t)FAR_AHEAD;
  if (since < -most || since > most) return begin;
  return since < 0 && (uint64_t)-since > begin ? 0 : begin + (uint64_t)since;
}

/* Launches pay when they arrive, so that threads and processes go on in the order of their arrival. The limit page may
 * change at any time, so that the share is read again after each sleep. */
void sublet_pay(int account, uint64_t context, uint64_t cost, uint64_t now) {
  const uint64_t began = now;
  const int64_t busy = with_gain(account, (int64_t)earlier(cost, MOST_COST));
  struct sublet_share_device* row = row_of(account);
  const uint64_t corrected = row != NULL ? __atomic_load_n(&row->corrected, __ATOMIC_ACQUIRE) : 0;
  const uint32_t share = sublet_share_of(account);
  const uint64_t begin = row != NULL && share != 0 ? pay_ahead(row, now, (uint64_t)busy * 100 / share) : now;
  for (;;) {
    const uint64_t until = row != NULL ? shifted(row, begin, corrected) : now;
    if (until <= now || now - began >= HORIZON || sublet_share_of(account) == 0) break;
    sublet_sleep(earlier(later(until - now, LEAST_SLEEP), MOST_SLEEP));
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
  struct sublet_share_device* row = row_of(account);
  uint64_t there = row != NULL ? __atomic_load_n(&row->paid_until, __ATOMIC_RELAXED) : 0;
  for (int i = 0; row != NULL && i < TRIES; ++i) {
    const uint64_t paid = believed(there, now);
    const uint64_t less = paid > price ? paid - price : 0;
    const uint64_t then = busy < 0 ? less : earlier(paid + price, now + HORIZON);
    if (!__atomic_compare_exchange_n(&row->paid_until, &there, then, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
    __atomic_fetch_add(&row->corrected, then - paid, __ATOMIC_ACQ_REL);
    break;
  }
  note_busy(account, busy);
}
