/* SPDX-License-Identifier: Apache-2.0 */
/* The accounts of the process: bytes that it has charged of each device. */
#include "kernel.h"
#include "share.h"

static const struct sublet_limit_page* limits; /* of the process; NULL: it has none */
static uint32_t account_count;
static uint32_t taken; /* 1: the process has pages, or is about to have them */
static uint8_t uuids[SUBLET_LIMIT_DEVICES][16];
static struct sublet_use_page own_use __attribute__((aligned(64))); /* of a process without a daemon */
static struct sublet_use_device* uses = own_use.device;

/* The process may get other pages (sublet_move). Then each account of the earlier page has this mark, and a thread that
 * finds it goes on with the new page. The moving process is 0 at all other times. A forked child may find the mark of
 * its parent: it cannot use the driver, and charges nothing. */
#define MOVED ((uint64_t)1 << 63)
static int32_t moving;

/* By device number: 0: not asked yet, 1: no account, else the account + 2. */
enum { DEVICES = 64 };
static uint8_t accounts[DEVICES];

EXPORTED int sublet_cuda_adopt(const struct sublet_limit_page* page);
EXPORTED int sublet_cuda_use(struct sublet_use_page* out);

int sublet_is_limited(void) { return __atomic_load_n(&limits, __ATOMIC_ACQUIRE) != NULL; }

/* Other threads may run meanwhile (sublet_begin_late). The accounts come first, then their number, and `limits` last: a
 * thread that finds limits finds all of them. */
int sublet_adopt(const struct sublet_limit_page* limit, struct sublet_use_page* use) {
  const uint32_t count = __atomic_load_n(&limit->devices, __ATOMIC_RELAXED);
  if (limit->size != sizeof *limit || limit->abi != SUBLET_LIMIT_ABI || count > SUBLET_LIMIT_DEVICES) return 0;
  uint32_t free = 0;
  if (!__atomic_compare_exchange_n(&taken, &free, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 0;
  for (uint32_t i = 0; i < count; ++i)
    for (int byte = 0; byte < 16; ++byte) uuids[i][byte] = limit->device[i].uuid[byte];
  *use = (struct sublet_use_page){.abi = SUBLET_LIMIT_ABI, .devices = count};
  __atomic_store_n(&use->size, sizeof *use, __ATOMIC_RELEASE);
  __atomic_store_n(&uses, use->device, __ATOMIC_SEQ_CST);
  __atomic_store_n(&account_count, count, __ATOMIC_RELEASE);
  __atomic_store_n(&limits, limit, __ATOMIC_RELEASE);
  sublet_tell_coverage();
  return 1;
}

void sublet_drop(void) {
  __atomic_store_n(&limits, NULL, __ATOMIC_RELEASE);
  __atomic_store_n(&uses, own_use.device, __ATOMIC_RELEASE);
  __atomic_store_n(&taken, 0, __ATOMIC_RELEASE);
  sublet_drop_share();
}

static const struct sublet_limit_page* limits_now(void) { return __atomic_load_n(&limits, __ATOMIC_ACQUIRE); }

static int32_t own_pid(void) { return (int32_t)sublet_kernel(SYS_getpid, 0, 0, 0, 0, 0, 0); }

static struct sublet_use_device* uses_now(void) { return __atomic_load_n(&uses, __ATOMIC_SEQ_CST); }

/* The page around its devices. */
static struct sublet_use_page* page_of(struct sublet_use_device* devices) {
  return (struct sublet_use_page*)((char*)devices - offsetof(struct sublet_use_page, device));
}

struct sublet_use_page* sublet_use_now(void) { return page_of(uses_now()); }

/* The new page has the same devices in the same order. Each account of the earlier page is closed before the new page
 * gets its bytes, so that no charge is lost. `size` tells the reader of the page that its bytes are there. */
int sublet_move(const struct sublet_limit_page* limit, struct sublet_use_page* use) {
  const uint32_t count = __atomic_load_n(&limit->devices, __ATOMIC_RELAXED);
  if (limit->size != sizeof *limit || limit->abi != SUBLET_LIMIT_ABI || count != sublet_accounts()) return 0;
  for (uint32_t i = 0; i < count; ++i)
    for (int byte = 0; byte < 16; ++byte)
      if (uuids[i][byte] != limit->device[i].uuid[byte]) return 0;
  int32_t nobody = 0;
  if (!__atomic_compare_exchange_n(&moving, &nobody, own_pid(), 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 0;
  struct sublet_use_device* old = uses_now();
  *use = (struct sublet_use_page){.abi = SUBLET_LIMIT_ABI, .devices = count};
  for (uint32_t i = 0; i < count; ++i) {
    use->device[i].charged = __atomic_fetch_or(&old[i].charged, MOVED, __ATOMIC_SEQ_CST);
    use->device[i].most = __atomic_load_n(&old[i].most, __ATOMIC_RELAXED);
    use->device[i].refused = __atomic_load_n(&old[i].refused, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&use->size, sizeof *use, __ATOMIC_SEQ_CST);
  /* A thread reads `uses` first, so that it never charges the new page by the earlier credit. */
  __atomic_store_n(&limits, limit, __ATOMIC_RELEASE);
  __atomic_store_n(&uses, use->device, __ATOMIC_SEQ_CST);
  sublet_bring_counts(page_of(old), use);
  sublet_tell_coverage();
  __atomic_store_n(&moving, 0, __ATOMIC_RELEASE);
  return 1;
}

/* A thread has found the mark on `old`. -> the page to go on with; NULL: there is none, because another process has
 * moved. */
static struct sublet_use_device* next_uses(const struct sublet_use_device* old) {
  for (;;) {
    const int32_t mover = __atomic_load_n(&moving, __ATOMIC_ACQUIRE);
    struct sublet_use_device* now = uses_now();
    if (now != old) return now;
    if (mover != own_pid()) return NULL;
    sublet_kernel(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
  }
}

void sublet_tell_coverage(void) {
  if (sublet_is_uncovered()) __atomic_store_n(&sublet_use_now()->is_uncovered, 1, __ATOMIC_RELEASE);
}

/* Changes an account. -> the bytes after that; `at`: the page. 0 if there is no page. */
static uint64_t change(int account, uint64_t bytes, int is_more, struct sublet_use_device** at) {
  struct sublet_use_device* page = uses_now();
  uint64_t now = __atomic_load_n(&page[account].charged, __ATOMIC_RELAXED);
  for (;;) {
    if ((now & MOVED) != 0) {
      page = next_uses(page);
      if (page == NULL) return 0;
      now = __atomic_load_n(&page[account].charged, __ATOMIC_RELAXED);
      continue;
    }
    const uint64_t then = is_more ? now + bytes : now - bytes;
    if (!__atomic_compare_exchange_n(&page[account].charged, &now, then, 1, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
      continue;
    *at = page;
    return then;
  }
}

/* Gives this process limits, before its first cuInit. The page stays with the caller, who may change its amounts. 0:
 * done; -1: another version, or the process has a page already. */
int sublet_cuda_adopt(const struct sublet_limit_page* page) { return sublet_adopt(page, &own_use) ? 0 : -1; }

/* Tells what this process has charged. 0: done; -1: the structure is too small. */
int sublet_cuda_use(struct sublet_use_page* out) {
  if (out->size < sizeof *out) return -1;
  *out = (struct sublet_use_page){.size = sizeof *out, .abi = SUBLET_LIMIT_ABI};
  if (!sublet_is_limited()) return 0;
  out->devices = sublet_accounts();
  out->is_uncovered = sublet_is_uncovered() != 0;
  for (uint32_t i = 0; i < out->devices; ++i) {
    const struct sublet_use_device* use = &uses_now()[i];
    out->device[i].charged = __atomic_load_n(&use->charged, __ATOMIC_SEQ_CST) & ~MOVED;
    out->device[i].most = __atomic_load_n(&use->most, __ATOMIC_RELAXED);
    out->device[i].refused = __atomic_load_n(&use->refused, __ATOMIC_RELAXED);
    out->device[i].busy = __atomic_load_n(&use->busy, __ATOMIC_RELAXED);
    out->device[i].held = __atomic_load_n(&use->held, __ATOMIC_RELAXED);
  }
  sublet_copy_counts(out);
  return 0;
}

int sublet_account_of_uuid(const uint8_t* uuid) {
  for (uint32_t i = 0, count = sublet_accounts(); i < count; ++i) {
    int same = 1;
    for (int byte = 0; byte < 16; ++byte) same = same && uuids[i][byte] == uuid[byte];
    if (same) return (int)i;
  }
  return NO_ACCOUNT;
}

int sublet_account_of(int device) {
  if (device < 0 || device >= DEVICES) return NO_ACCOUNT;
  const uint8_t known = __atomic_load_n(&accounts[device], __ATOMIC_RELAXED);
  if (known != 0) return (int)known - 2;
  /* The second form tells a MIG slice from its card. */
  int (*ask)(uint8_t*, int) = (int (*)(uint8_t*, int))sublet_real(HOOK_cuDeviceGetUuid_v2);
  if (ask == NULL) ask = (int (*)(uint8_t*, int))sublet_real(HOOK_cuDeviceGetUuid);
  uint8_t uuid[16];
  if (ask == NULL || ask(uuid, device) != CUDA_SUCCESS) return NO_ACCOUNT;
  const int account = sublet_account_of_uuid(uuid);
  __atomic_store_n(&accounts[device], (uint8_t)(account + 2), __ATOMIC_RELAXED);
  return account;
}

static void note_most(struct sublet_use_device* use, uint64_t now) {
  uint64_t most = __atomic_load_n(&use->most, __ATOMIC_RELAXED);
  while (most < now && !__atomic_compare_exchange_n(&use->most, &most, now, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

/* The credit is read again after the charge, because its writer may have lowered it meanwhile: the writer lowers it
 * first and reads the charge then, so that one of the two sees the other (src/wire/limit.h). */
int sublet_try_charge(int account, uint64_t bytes) {
  if (account < 0 || bytes == 0) return 1;
  struct sublet_use_device* page = uses_now();
  uint64_t now = __atomic_load_n(&page[account].charged, __ATOMIC_RELAXED);
  for (;;) {
    if ((now & MOVED) != 0) {
      page = next_uses(page);
      if (page == NULL) return 1;
      now = __atomic_load_n(&page[account].charged, __ATOMIC_RELAXED);
      continue;
    }
    const uint64_t* credit = &limits_now()->device[account].credit;
    const uint64_t may = __atomic_load_n(credit, __ATOMIC_RELAXED);
    if (now > may || bytes > may - now) return 0;
    uint64_t* charged = &page[account].charged;
    if (!__atomic_compare_exchange_n(charged, &now, now + bytes, 1, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) continue;
    if (__atomic_load_n(credit, __ATOMIC_SEQ_CST) >= now + bytes) break;
    now = change(account, bytes, 0, &page);
  }
  note_most(&page[account], now + bytes);
  return 1;
}

/* The daemon may give what it has as soon as it is asked: other threads and processes may take it before us, so that
 * this goes on while it gives. A daemon that does not answer is asked once. */
int sublet_charge(int account, uint64_t bytes) {
  enum { TRIES = 64 };
  int answer = 1;
  for (int trimmed = 0; trimmed < 2; ++trimmed) {
    if (sublet_try_charge(account, bytes)) return 1;
    for (int i = 0; i < TRIES && answer >= 0; ++i) {
      answer = sublet_ask_for_credit(account, sublet_charged(account) + bytes);
      if (answer <= 0) break;
      if (sublet_try_charge(account, bytes)) return 1;
    }
    /* The driver takes idle memory of pools too before it refuses. */
    if (!trimmed) sublet_trim_pools(account);
  }
  __atomic_fetch_add(&uses_now()[account].refused, 1, __ATOMIC_RELAXED);
  (void)sublet_noted(CUDA_ERROR_OUT_OF_MEMORY, COUNT_ALLOCATED, 0);
  return 0;
}

void sublet_add(int account, uint64_t bytes) {
  if (account < 0 || bytes == 0) return;
  struct sublet_use_device* page = NULL;
  const uint64_t now = change(account, bytes, 1, &page);
  if (page != NULL) note_most(&page[account], now);
}

void sublet_discharge(int account, uint64_t bytes) {
  if (account < 0 || bytes == 0) return;
  struct sublet_use_device* page = NULL;
  change(account, bytes, 0, &page);
}

uint64_t sublet_charged(int account) {
  return __atomic_load_n(&uses_now()[account].charged, __ATOMIC_RELAXED) & ~MOVED;
}

uint64_t sublet_context_bytes(int account) {
  return account < 0 ? 0 : __atomic_load_n(&limits_now()->device[account].context, __ATOMIC_RELAXED);
}

const struct sublet_limit_device* sublet_row_of(int account) {
  const struct sublet_limit_page* page = limits_now();
  return account >= 0 && page != NULL ? &page->device[account] : NULL;
}

uint32_t sublet_accounts(void) { return __atomic_load_n(&account_count, __ATOMIC_ACQUIRE); }

uint64_t sublet_limit_of(int account) {
  return __atomic_load_n(&limits_now()->device[account].limit, __ATOMIC_RELAXED);
}

uint64_t sublet_free_of(int account) {
  const struct sublet_limit_device* device = &limits_now()->device[account];
  const uint64_t limit = __atomic_load_n(&device->limit, __ATOMIC_RELAXED);
  const uint64_t others = __atomic_load_n(&device->others, __ATOMIC_RELAXED);
  const uint64_t charged = sublet_charged(account);
  if (others >= limit || charged >= limit - others) return 0;
  return limit - others - charged;
}

int sublet_is_over(int account) {
  if (account < 0) return 0;
  return sublet_charged(account) > __atomic_load_n(&limits_now()->device[account].credit, __ATOMIC_RELAXED);
}
