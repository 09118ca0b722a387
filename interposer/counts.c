/* SPDX-License-Identifier: Apache-2.0 */
/* The counts of the process in its use page: launches, bytes and errors. No lock, and no system call.
 *
 * The process may get another page (sublet_move). A thread that has counted in a page that the process has left takes
 * what is in the word, and counts it again in the new page. The mover takes each word after all threads could see the
 * new page, so that one of the two takes it, and no count is lost. */
#include "share.h"

enum { CUDA_ERROR_NOT_READY = 600 }; /* an answer to a question, no error */
enum { LAUNCHES_TO_LOOK = 1024 };

static uint64_t take(uint64_t* word) { return __atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST); }

static uint64_t* word_of(struct sublet_use_page* page, uint32_t shard, enum sublet_count what) {
  struct sublet_use_shard* row = &page->shard[shard];
  return what == COUNT_LAUNCHES ? &row->launches : what == COUNT_COPIED ? &row->copied : &row->allocated;
}

static uint64_t* error_word(struct sublet_use_page* page, uint32_t code) {
  for (uint32_t i = 0; i < SUBLET_USE_ERRORS; ++i) {
    uint32_t* there = &page->error[i].code;
    uint32_t found = __atomic_load_n(there, __ATOMIC_RELAXED);
    if (found == 0 && __atomic_compare_exchange_n(there, &found, code, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return &page->error[i].count;
    if (found == code) return &page->error[i].count;
  }
  return &page->other_errors;
}

/* A daemon that has started again does not know the page. A process that needs no more memory learns that by its
 * launches. */
static void add(enum sublet_count what, uint64_t amount) {
  const int shard = sublet_shard_number();
  uint64_t before = 0, added = amount;
  while (shard >= 0 && amount != 0) {
    struct sublet_use_page* page = sublet_use_now();
    uint64_t* word = word_of(page, (uint32_t)shard, what);
    before = __atomic_fetch_add(word, amount, __ATOMIC_SEQ_CST);
    amount = page == sublet_use_now() ? 0 : take(word);
  }
  if (what == COUNT_LAUNCHES && before % LAUNCHES_TO_LOOK + added >= LAUNCHES_TO_LOOK && sublet_accounts() > 0)
    sublet_look_at_daemon(0, sublet_clock());
}

static void add_error(uint32_t code) {
  uint64_t amount = sublet_shard_number() >= 0;
  while (amount != 0) {
    struct sublet_use_page* page = sublet_use_now();
    uint64_t* word = error_word(page, code);
    __atomic_fetch_add(word, amount, __ATOMIC_SEQ_CST);
    amount = page == sublet_use_now() ? 0 : take(word);
  }
}

int sublet_noted(int result, enum sublet_count what, uint64_t amount) {
  if (result == CUDA_SUCCESS) {
    if (what != NO_COUNT) add(what, amount);
  } else if (result != CUDA_ERROR_NOT_READY) {
    add_error((uint32_t)result);
  }
  return result;
}

void sublet_bring_counts(struct sublet_use_page* old, struct sublet_use_page* now) {
  for (uint32_t shard = 0; shard < SUBLET_USE_SHARDS; ++shard)
    for (int what = 0; what < NO_COUNT; ++what) {
      const uint64_t amount = take(word_of(old, shard, (enum sublet_count)what));
      if (amount != 0) __atomic_fetch_add(word_of(now, shard, (enum sublet_count)what), amount, __ATOMIC_SEQ_CST);
    }
  for (uint32_t i = 0; i < SUBLET_USE_ERRORS; ++i) {
    const uint64_t amount = take(&old->error[i].count);
    if (amount == 0) continue;
    const uint32_t code = __atomic_load_n(&old->error[i].code, __ATOMIC_RELAXED);
    __atomic_fetch_add(error_word(now, code), amount, __ATOMIC_SEQ_CST);
  }
  for (uint32_t i = 0; i < SUBLET_LIMIT_DEVICES; ++i) {
    __atomic_fetch_add(&now->device[i].busy, take(&old->device[i].busy), __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&now->device[i].held, take(&old->device[i].held), __ATOMIC_SEQ_CST);
  }
  __atomic_fetch_add(&now->other_errors, take(&old->other_errors), __ATOMIC_SEQ_CST);
}

void sublet_copy_counts(struct sublet_use_page* out) {
  struct sublet_use_page* page = sublet_use_now();
  for (uint32_t shard = 0; shard < SUBLET_USE_SHARDS; ++shard)
    for (int what = 0; what < NO_COUNT; ++what)
      *word_of(out, shard, (enum sublet_count)what) =
          __atomic_load_n(word_of(page, shard, (enum sublet_count)what), __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < SUBLET_USE_ERRORS; ++i) {
    out->error[i].code = __atomic_load_n(&page->error[i].code, __ATOMIC_RELAXED);
    out->error[i].count = __atomic_load_n(&page->error[i].count, __ATOMIC_RELAXED);
  }
  out->other_errors = __atomic_load_n(&page->other_errors, __ATOMIC_RELAXED);
}
