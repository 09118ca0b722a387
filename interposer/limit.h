/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of the memory (record 0070): accounts, tables, and what the hooks of several files share. Nothing here has
 * a lock. Hooks charge before they call the driver, and give back after it. */
#ifndef SUBLET_INTERPOSER_LIMIT_H
#define SUBLET_INTERPOSER_LIMIT_H

#include "internal.h"
#include "wire/limit.h"

enum { CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2 };

/* The card gives out memory in blocks of 2 MiB. */
enum { BLOCK_SHIFT = 21 };
#define BLOCK ((uint64_t)1 << BLOCK_SHIFT)
/* No driver gives more at once, and sums of such sizes cannot overflow. */
#define MOST_BYTES ((uint64_t)1 << 46)

/* `size` as the multiple of `unit` that holds it; MOST_BYTES for more. */
static inline uint64_t sublet_round(uint64_t size, uint64_t unit) {
  return size >= MOST_BYTES ? MOST_BYTES : (size + unit - 1) / unit * unit;
}

/* --- table.c */

struct sublet_slot {
  uint64_t key, a, b;
};
enum { SUBLET_LEVELS = 24 };
struct sublet_table {
  struct sublet_slot* level[SUBLET_LEVELS];
};

/* Tables of keys that come and go. The driver gives out no key twice, so that a key has one place. */
int sublet_put(struct sublet_table* table, uint64_t key, uint64_t a, uint64_t b); /* 0: no memory for the table */
struct sublet_slot* sublet_find(struct sublet_table* table, uint64_t key);
/* Removes a key, and copies its place. 0: it is not there, or another thread has removed it. */
int sublet_take(struct sublet_table* table, uint64_t key, struct sublet_slot* out);
/* Tables of keys that stay: the place of a key, new ones with zeros. NULL: no memory for the table. */
struct sublet_slot* sublet_place(struct sublet_table* table, uint64_t key);
void sublet_each(struct sublet_table* table, void (*visit)(struct sublet_slot*, uint64_t key, void*), void* data);
/* Inside of sublet_each: removes the key of this place. */
int sublet_empty(struct sublet_slot* slot, uint64_t key, struct sublet_slot* out);

/* --- account.c: bytes by device. An account is the index of a device in the limit page, or NO_ACCOUNT. */

enum { NO_ACCOUNT = -1 };

/* Whether this process has a limit. Without, every hook only counts and forwards. */
int sublet_is_limited(void);
/* The account of a device of this process. */
int sublet_account_of(int device);
/* The account of a device by its uuid. */
int sublet_account_of_uuid(const uint8_t* uuid);
/* Charges before the driver is called. 0: over the limit, also after the daemon was asked for more and idle memory of
 * pools was given back. */
int sublet_charge(int account, uint64_t bytes);
/* The same without giving anything back, and without counting a refusal. */
int sublet_try_charge(int account, uint64_t bytes);
/* Takes the pages of the process, the use page cleared. 0: of another version, or the process has pages already. */
int sublet_adopt(const struct sublet_limit_page* limit, struct sublet_use_page* use);
/* The process has no pages any more: those that it has are its parent's. */
void sublet_drop(void);
/* Takes other pages in their place, and brings along what is charged. 0: of another version or of other devices, or
 * another thread does the same. */
int sublet_move(const struct sublet_limit_page* limit, struct sublet_use_page* use);
/* Tells in the use page that calls may pass the hooks, if they may. */
void sublet_tell_coverage(void);
/* Charges what the driver has taken already. */
void sublet_add(int account, uint64_t bytes);
void sublet_discharge(int account, uint64_t bytes);
uint64_t sublet_charged(int account);
uint64_t sublet_context_bytes(int account);
/* The size of a device and its free memory for the program. */
uint64_t sublet_limit_of(int account);
uint64_t sublet_free_of(int account);
/* Whether more is charged than may be: the driver took more than was expected, or the credit became smaller. */
int sublet_is_over(int account);

/* The row of an account in the limit page; NULL: the process has none. */
const struct sublet_limit_device* sublet_row_of(int account);
/* How many devices the pages of the process have. */
uint32_t sublet_accounts(void);
/* The use page of the process. */
struct sublet_use_page* sublet_use_now(void);

/* --- counts.c */

enum sublet_count { COUNT_LAUNCHES, COUNT_COPIED, COUNT_ALLOCATED, NO_COUNT };

/* Counts `amount` if the call succeeded, else its error. -> the result */
int sublet_noted(int result, enum sublet_count what, uint64_t amount);
/* Moves all counts of the page that the process has left, and its times of launches. */
void sublet_bring_counts(struct sublet_use_page* old, struct sublet_use_page* now);
void sublet_copy_counts(struct sublet_use_page* out);

/* --- contexts.c */

struct sublet_where {
  int account;
  int device;       /* its number in this process */
  uint64_t context; /* 0: none */
};

/* Where the calling thread allocates. */
struct sublet_where sublet_here(void);
/* The same for the context of a stream. */
struct sublet_where sublet_of_stream(void* stream);

/* --- memory.c */

/* Forgets all memory of a context that has ended. */
void sublet_end_memory(uint64_t context);
void sublet_end_arrays(uint64_t context); /* arrays.c */

struct sublet_claim {
  struct sublet_where where;
  uint64_t bytes; /* charged */
};
int sublet_begin_claim(struct sublet_claim* claim, uint64_t bytes);
/* Gives a claim back if the call failed, and passes the result on. */
int sublet_end_claim(const struct sublet_claim* claim, int result);

/* --- pools.c */

/* Makes pools give back what they do not use. */
void sublet_trim_pools(int account);
/* Charges what pools reserve now. */
void sublet_look_at_pools(int account);

/* --- channel.c */

/* After the first cuInit that succeeded, or at the first look at memory by NVML: takes the pages that the daemon has
 * for this process, if there is a daemon. */
void sublet_begin_limit(void);
/* The same in a later call, if there was no free descriptor for that. 1: the process has its limits now. */
int sublet_begin_late(void);
/* Asks for credit of `needed` bytes in all. 1: granted, 0: there is none, -1: nobody has answered, or the process could
 * not begin again with a daemon that has started again. */
int sublet_ask_for_credit(int account, uint64_t needed);

/* --- hooks.c */

/* The shard of this thread; -1: it has none, because cuInit has not succeeded yet. */
int sublet_shard_number(void);

/* The function that a hook calls: that of the driver, with the call counted, or a stub. 0: only forward. */
int sublet_enter(int hook, const void* caller, void** next);

/* The first words of a hook: `next` is the function to call. */
#define SUBLET_NEXT(name) void* found_next = NULL; \
  const int is_hooked = sublet_enter(HOOK_##name, __builtin_return_address(0), &found_next)
#define SUBLET_CALL(type) ((type)found_next)

#endif
