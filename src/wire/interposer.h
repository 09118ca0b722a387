/* SPDX-License-Identifier: Apache-2.0 */
/* The report of the preloaded library about its process. C, because the library has no C++ runtime. A reader takes a
 * report only if `abi` is the one that it was built with. */
#ifndef SUBLET_WIRE_INTERPOSER_H
#define SUBLET_WIRE_INTERPOSER_H

#include <stdint.h>

#define SUBLET_INTERPOSER_ABI 1u

enum sublet_interposer_state {
  SUBLET_INTERPOSER_PASSIVE = 0,  /* no successful cuInit yet: every call is forwarded and nothing else is done */
  SUBLET_INTERPOSER_COVERED = 1,  /* every function that needs a hook has one, and the self-test passed */
  SUBLET_INTERPOSER_UNCOVERED = 2 /* `reason` and `name` tell why; calls are still forwarded and counted */
};

enum sublet_interposer_reason {
  SUBLET_INTERPOSER_NO_REASON = 0,
  SUBLET_INTERPOSER_UNKNOWN_EXPORT = 1,  /* the driver exports `name`, which needs a hook and has none */
  SUBLET_INTERPOSER_UNKNOWN_POINTER = 2, /* cuGetProcAddress answered `name` with a function that is no export */
  SUBLET_INTERPOSER_SECOND_DRIVER = 3    /* another copy of the driver is in the process, found by `name` */
};

struct sublet_interposer_report {
  uint32_t size;          /* of this structure, in bytes; set by the caller before the call */
  uint32_t abi;           /* SUBLET_INTERPOSER_ABI of the library */
  uint32_t state;         /* enum sublet_interposer_state */
  uint32_t reason;        /* enum sublet_interposer_reason */
  int32_t driver_version; /* as cuDriverGetVersion tells it, 12040 for 12.4; 0: not known */
  uint32_t hooks;         /* functions for which the library has a hook */
  uint32_t found;         /* of these, functions that the driver exports; 0: no driver found yet */
  uint32_t reserved;      /* 0 */
  char name[64];          /* of the function in `reason`; "": none */
};

#endif
