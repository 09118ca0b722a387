/* SPDX-License-Identifier: Apache-2.0 */
/* The memory and the computing time that a process may take of each device, and those that it has taken. C, because the
 * preloaded library has no C++ runtime. A reader takes a page only if `size` and `abi` are those that it was built
 * with. */
#ifndef SUBLET_WIRE_LIMIT_H
#define SUBLET_WIRE_LIMIT_H

#include <stdint.h>

#define SUBLET_LIMIT_ABI 2u
#define SUBLET_LIMIT_DEVICES 16u
#define SUBLET_USE_ERRORS 16u
#define SUBLET_USE_SHARDS 32u

/* The writer may change all fields but `uuid` at any time, one word at once. It takes unused credit back in this order:
 * it lowers `credit`, then reads `charged`. A `charged` that is not larger is proof: the process charges no more than
 * the new credit from then on. Otherwise the writer sets `credit` to what it was. */
struct sublet_limit_device {
  uint8_t uuid[16];  /* as cuDeviceGetUuid_v2 tells it: of the card, or of its MIG slice */
  uint64_t limit;    /* bytes of the lease on this device, which the program takes for the size of the device */
  uint64_t credit;   /* bytes that this process may have charged at once; at most `limit` */
  uint64_t others;   /* bytes that the other processes of the lease have charged */
  uint64_t context;  /* bytes that a context takes on this device, as they were measured */
  uint32_t share;    /* percent of the device's computing time that the lease may take at most; 0, 100: no bound */
  uint32_t gain;     /* thousandths by which the process multiplies the time that it measured; 0: 1000 */
};

struct sublet_limit_page {
  uint32_t size;     /* of this structure, in bytes */
  uint32_t abi;      /* SUBLET_LIMIT_ABI */
  uint32_t devices;  /* entries of `device` that are valid; a device that has no entry has no limit */
  uint32_t reserved; /* 0 */
  struct sublet_limit_device device[SUBLET_LIMIT_DEVICES];
};

struct sublet_use_device {
  uint64_t charged; /* bytes now */
  uint64_t most;    /* the largest value of `charged` until now */
  uint64_t refused; /* calls that got CUDA_ERROR_OUT_OF_MEMORY from the library */
  uint64_t busy;    /* nanoseconds of the device's time that launches were charged, multiplied by `gain` */
  uint64_t held;    /* nanoseconds that launches have waited for the share */
};

struct sublet_use_error {
  uint32_t code;     /* of CUresult; 0: the entry is free */
  uint32_t reserved; /* 0 */
  uint64_t count;
};

/* Counts since the program began. The sum of all shards is the count: each thread writes one of them. */
struct sublet_use_shard {
  uint64_t launches;  /* of kernels and graphs */
  uint64_t copied;    /* bytes */
  uint64_t allocated; /* bytes */
  uint64_t reserved[5];
};

/* Entries are in the order of the limit page. */
struct sublet_use_page {
  uint32_t size;         /* of this structure, in bytes; set by the caller before a call */
  uint32_t abi;          /* SUBLET_LIMIT_ABI */
  uint32_t devices;      /* as in the limit page; 0: the process has no limit */
  uint32_t is_uncovered; /* 1: calls may pass the hooks (interposer.h) */
  struct sublet_use_device device[SUBLET_LIMIT_DEVICES];
  struct sublet_use_error error[SUBLET_USE_ERRORS];
  uint64_t other_errors; /* of codes that have no entry */
  uint64_t reserved[5];  /* so that each shard is a cache line */
  struct sublet_use_shard shard[SUBLET_USE_SHARDS];
};

/* The computing time of a lease with a share, written by all processes of the lease, in nanoseconds of CLOCK_MONOTONIC.
 * A launch may begin at the later one of `paid_until` and a moment some milliseconds ago. The launch adds its cost *
 * 100 / share to that time by compare-and-swap, and then waits for it: the virtual scheduling algorithm of ITU-T I.371
 * (GCRA). Nobody believes a value: a reader waits a bounded time only, and replaces a value that is far away. */
struct sublet_share_device {
  uint64_t paid_until;
  uint64_t corrected;   /* sum of the corrections of `paid_until`, modulo 2^64, which launches that wait keep to */
  uint64_t reserved[6]; /* so that each device is a cache line */
};

/* Entries are in the order of the limit page. */
struct sublet_share_page {
  uint32_t size;     /* of this structure, in bytes */
  uint32_t abi;      /* SUBLET_LIMIT_ABI */
  uint32_t devices;  /* as in the limit page */
  uint32_t reserved; /* 0 */
  uint64_t unused[6];
  struct sublet_share_device device[SUBLET_LIMIT_DEVICES];
};

#endif
