/* SPDX-License-Identifier: Apache-2.0 */
/* The costs of launches. A key is a function with the size of its launch, or a graph. Every k-th launch of a key is
 * measured. The next ones are charged with what was learned, and a sample corrects the charges since the last one. */
#include "share.h"

/* By key. a: NEVER, MEASURING, else nanoseconds + KNOWN, or nanoseconds + GUESS, of which the first sample takes the
 * place. b: launches since the last sample, and above them the launches from one sample to the next. */
static struct sublet_table costs;
enum { NEVER = 0, MEASURING = 1, KNOWN = 2 };
#define GUESS ((uint64_t)1 << 63)
#define SINCE(word) ((word) & 0xffffffffu)
#define EVERY(word) ((word) >> 32)

/* The next launch of a key waits for so long for the first sample: its kernel may itself wait for what this thread does
 * after this launch. */
#define WAIT_FOR_FIRST_NS ((uint64_t)100000000)
/* A sample takes about 5 µs of the host and 2 µs of the device: at most 0.5 % of the time of the launches. */
#define TIME_PER_SAMPLE_NS ((uint64_t)1000000)
enum { MOST_EVERY = 1000, USUAL_CALL_NS = 20000 };

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* --- keys */

/* Half steps of powers of two. */
static uint64_t bucket_of(uint64_t size) {
  if (size < 2) return size;
  const int log = 63 - __builtin_clzll(size);
  return (uint64_t)log * 2 + (size >> (log - 1) & 1);
}

uint64_t sublet_key_of(const void* function, uint64_t blocks, uint64_t threads) {
  return (uint64_t)function << 12 ^ bucket_of(blocks) << 5 ^ (bucket_of(threads) & 31);
}

/* --- learning */

/* A kernel that another process has interrupted would look many times as long as it is. Such a sample moves the cost by
 * a bounded step: a cost that has really grown is there after some samples. */
static uint64_t moved(uint64_t known, uint64_t sample) {
  const uint64_t most = 8 * known + 100000;
  const int64_t step = (int64_t)(sample < most ? sample : most) - (int64_t)known;
  return known + (uint64_t)(step / 4);
}

/* The next sample comes earlier. */
static void measure_sooner(struct sublet_slot* place) {
  uint64_t now = __atomic_load_n(&place->b, __ATOMIC_RELAXED);
  __atomic_compare_exchange_n(&place->b, &now, (EVERY(now) / 8) << 32 | SINCE(now), 0, __ATOMIC_ACQ_REL,
                              __ATOMIC_RELAXED);
}

/* The time of a measured launch. A call of the usual length reached the card in its middle, or thereabouts. In a longer
 * one the thread may have lost its processor before the launch or after it. Then all times are possible from that
 * without the call to all of it, and the nearest to the known one is taken; it is never next to nothing, though. */
static uint64_t time_of(const struct sublet_sample* sample, uint64_t elapsed, uint64_t known) {
  const uint64_t gap = sample->is_idle ? sample->gap : 0, without = elapsed > gap ? elapsed - gap : 0;
  if (gap < USUAL_CALL_NS) return elapsed - smaller(gap / 2, elapsed / 8);
  const uint64_t least = smaller(elapsed / 2, 5 * USUAL_CALL_NS);
  if (known < without || known < least) return without > least ? without : least;
  return smaller(known, elapsed);
}

/* The first sample of a key on a busy stream, with a long call: the driver may have loaded the kernel in it, while the
 * stream had come to its end. It costs nothing, and the next launch is measured again. */
static int is_doubtful(const struct sublet_sample* sample, uint64_t was) {
  return was < KNOWN && !sample->is_idle && sample->gap >= USUAL_CALL_NS;
}

void sublet_learn(const struct sublet_sample* sample, uint64_t elapsed) {
  uint64_t was = __atomic_load_n(&sample->place->a, __ATOMIC_ACQUIRE), now;
  if (is_doubtful(sample, was) && __atomic_compare_exchange_n(&sample->place->a, &was, GUESS + elapsed, 0,
                                                              __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return;
  const uint64_t nanoseconds = time_of(sample, elapsed, was < KNOWN || was >= GUESS ? 0 : was - KNOWN);
  do now = was < KNOWN || was >= GUESS ? nanoseconds : moved(was - KNOWN, nanoseconds);
  while (!__atomic_compare_exchange_n(&sample->place->a, &was, now + KNOWN, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
  if (nanoseconds > 2 * now) measure_sooner(sample->place);
  const int64_t charged = (int64_t)sample->charged, others = (int64_t)sample->launches - 1;
  sublet_correct(sample->account, (int64_t)nanoseconds - charged + others * ((int64_t)now - charged));
}

/* The launches until the next sample: twice as many as before, until the samples cost little. Programs that repeat the
 * same launches in a row would be measured at the same one always, if the steps were equal. */
static uint64_t next_every(uint64_t every, uint64_t cost, uint64_t chance) {
  const uint64_t most = smaller(TIME_PER_SAMPLE_NS / (cost > 1000 ? cost : 1000), MOST_EVERY);
  const uint64_t next = smaller(2 * every, most > 0 ? most : 1);
  return next - next / 4 + (chance * 0x9e3779b97f4a7c15u >> 40) % (next / 2 + 1);
}

/* Counts a launch. -> the launches that a sample now stands for; 0: this one is not measured */
static uint64_t count(struct sublet_slot* place, uint64_t cost, uint64_t chance) {
  uint64_t now = __atomic_add_fetch(&place->b, 1, __ATOMIC_ACQ_REL);
  const uint64_t since = SINCE(now), every = EVERY(now) == 0 ? 1 : EVERY(now);
  if (since < every) return 0;
  const uint64_t next = next_every(every, cost, chance) << 32;
  return __atomic_compare_exchange_n(&place->b, &now, next, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED) ? since : 0;
}

/* --- the cost of a launch */

/* Waits for the first sample of a key. If it does not come, the time that has passed is the guess. */
static void wait_for_first(struct sublet_launch* launch) {
  const uint64_t began = launch->now;
  for (uint64_t pause = 50000;; pause = smaller(2 * pause, 2000000)) {
    sublet_look_at_samples(launch->context, launch->now, launch->place);
    uint64_t is = __atomic_load_n(&launch->place->a, __ATOMIC_ACQUIRE);
    if (is != MEASURING) break;
    if (launch->now - began >= WAIT_FOR_FIRST_NS) {
      const uint64_t guess = launch->now - began + GUESS;
      __atomic_compare_exchange_n(&launch->place->a, &is, guess, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
      break;
    }
    sublet_sleep(pause);
    launch->now = sublet_clock();
  }
  sublet_note_held(launch->account, launch->now - began);
}

/* The first launch of a key costs nothing until its sample has come. A guess counts for half as much each time: a
 * program whose samples never come is held up for a moment, and not at each launch. */
static void find_cost(struct sublet_launch* launch) {
  for (;;) {
    uint64_t is = __atomic_load_n(&launch->place->a, __ATOMIC_ACQUIRE);
    launch->cost = is >= GUESS ? is - GUESS : is >= KNOWN ? is - KNOWN : 0;
    if (is >= GUESS)
      __atomic_compare_exchange_n(&launch->place->a, &is, GUESS + launch->cost / 2, 0, __ATOMIC_ACQ_REL,
                                  __ATOMIC_RELAXED);
    if (is >= KNOWN) return;
    launch->is_first = is == NEVER && __atomic_compare_exchange_n(&launch->place->a, &is, MEASURING, 0,
                                                                  __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    if (launch->is_first) return;
    wait_for_first(launch);
  }
}

/* The first launch of a key was not measured: it failed, or there was no sample. */
static void leave_first(struct sublet_slot* place, uint64_t then) {
  uint64_t is = MEASURING;
  __atomic_compare_exchange_n(&place->a, &is, then, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void sublet_lose(const struct sublet_sample* sample) { leave_first(sample->place, GUESS); }

/* The first launch of a key is free until its sample has come, so that many of them at once wait for samples. The time
 * that has passed without one is the guess. */
static void wait_for_sample(struct sublet_launch* launch) {
  const uint64_t began = launch->now;
  for (uint64_t pause = 50000; sublet_has_no_sample(launch->context); pause = smaller(2 * pause, 2000000)) {
    launch->guess = launch->now - began;
    if (launch->guess >= WAIT_FOR_FIRST_NS) break;
    sublet_sleep(pause);
    launch->now = sublet_clock();
    sublet_look_at_samples(launch->context, launch->now, NULL);
  }
  if (launch->now != began) sublet_note_held(launch->account, launch->now - began);
}

/* --- around a launch */

/* A launch into a stream that is being captured becomes a part of a graph. The driver also refuses to tell for streams
 * that a capture has made unusable. */
static int is_capturing(const struct sublet_stream* stream) {
  int (*ask)(void*, int*) = (int (*)(void*, int*))sublet_real(
      stream->by_thread ? HOOK_cuStreamIsCapturing_ptsz : HOOK_cuStreamIsCapturing);
  int status = 0;
  return ask != NULL && (ask(stream->handle, &status) != CUDA_SUCCESS || status != 0);
}

void sublet_begin_launch(struct sublet_launch* launch, uint64_t key, struct sublet_stream stream) {
  const struct sublet_where where = sublet_here();
  *launch = (struct sublet_launch){.account = NO_ACCOUNT, .context = where.context, .stream = stream};
  if (sublet_share_of(where.account) == 0 || is_capturing(&stream)) return;
  /* A function may have the same handle in several contexts, and these may be on unlike cards. */
  launch->place = sublet_place(&costs, key ^ where.context * 0x9e3779b97f4a7c15u);
  if (launch->place == NULL) return;
  launch->account = where.account;
  launch->now = sublet_clock();
  if (sublet_look_at_daemon(launch->account, launch->now)) launch->now = sublet_clock();
  sublet_look_at_samples(launch->context, launch->now, NULL);
  find_cost(launch);
  sublet_pay(launch->account, launch->context, launch->cost, launch->now);
  const uint64_t launches = count(launch->place, launch->cost, launch->now);
  if (launches == 0 && !launch->is_first) return;
  if (launch->is_first) wait_for_sample(launch);
  launch->sample = sublet_begin_sample(launch->context, &launch->stream);
  if (launch->sample == NULL) return;
  launch->sample->account = launch->account;
  launch->sample->place = launch->place;
  launch->sample->charged = launch->cost;
  launch->sample->launches = launches > 0 ? launches : 1;
}

void sublet_end_launch(struct sublet_launch* launch, int result) {
  if (result != CUDA_SUCCESS) {
    if (launch->sample != NULL) sublet_leave_sample(launch->sample);
    sublet_correct(launch->account, -(int64_t)launch->cost);
    if (launch->is_first) leave_first(launch->place, NEVER);
  } else if (launch->sample == NULL || !sublet_end_sample(launch->sample, launch->context, &launch->stream)) {
    if (launch->is_first) leave_first(launch->place, GUESS + launch->guess);
  }
}
