/* SPDX-License-Identifier: Apache-2.0 */
/* System calls without the C library. */
#ifndef SUBLET_INTERPOSER_KERNEL_H
#define SUBLET_INTERPOSER_KERNEL_H

#include <sys/syscall.h>

/* -> the result, or an error number below zero */
static inline long sublet_kernel(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

#endif
