/* SPDX-License-Identifier: Apache-2.0 */
/* The questions of the preloaded library to the daemon. The program's environment tells the path of a Unix socket
 * (SOCK_SEQPACKET) in SUBLET_CREDIT, and nothing else: the daemon decides by the sender of a question which lease it
 * belongs to. Each question has a connection of its own, so that either side may start again at any time, and a program
 * may close descriptors that it does not know. A reader takes a message only if `size` and `abi` are its own. */
#ifndef SUBLET_WIRE_CREDIT_H
#define SUBLET_WIRE_CREDIT_H

#include <stdint.h>

#define SUBLET_CREDIT_ABI 1u
#define SUBLET_CREDIT_VARIABLE "SUBLET_CREDIT"

enum sublet_credit_kind {
  /* The process begins, or begins again: it has executed another program, or a daemon that has started again does not
   * know its pages. It keeps its credit. The answer has two files: the limit page, which the process cannot write, and
   * the use page, which it writes (limit.h). A lease with a share under 100 has a third file, the share page, which all
   * its processes write. None of the files can become smaller. */
  SUBLET_CREDIT_BEGIN = 1,
  /* The process needs `needed` bytes of credit on the device with the index `device` of its limit page. The answer
   * comes when its page has that credit, or when it cannot have it. */
  SUBLET_CREDIT_MORE = 2
};

struct sublet_credit_question {
  uint32_t size; /* of this structure, in bytes */
  uint32_t abi;  /* SUBLET_CREDIT_ABI */
  uint32_t kind; /* enum sublet_credit_kind */
  uint32_t device;
  uint64_t needed;
};

enum sublet_credit_result {
  SUBLET_CREDIT_GRANTED = 0,
  SUBLET_CREDIT_REFUSED = 1, /* the lease has no more */
  SUBLET_CREDIT_UNKNOWN = 2, /* the process belongs to no lease, or the daemon does not know its pages */
  SUBLET_CREDIT_PAUSED = 3   /* the lease is paused: the process asks again, until the lease goes on or ends */
};

struct sublet_credit_answer {
  uint32_t size;     /* of this structure, in bytes */
  uint32_t abi;      /* SUBLET_CREDIT_ABI */
  uint32_t result;   /* enum sublet_credit_result */
  uint32_t reserved; /* 0 */
};

#endif
