/* SPDX-License-Identifier: Apache-2.0
 * Sizes of --vram. One shard is one GiB. */
#ifndef SUBLET_VRAM_SIZE_H
#define SUBLET_VRAM_SIZE_H

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Returns the MiB that "6", "6G", "6GiB", "6144M" or "6144MiB" mean, a bare number in GiB. 0: no size, or less than
 * 256 MiB or more than 1 PiB. */
static inline long sublet_mib_of(const char *text) {
  char *end = NULL;
  long number;
  if (text == NULL || !isdigit((unsigned char)text[0]) || strlen(text) > 12) return 0;
  number = strtol(text, &end, 10);
  if (number <= 0 || number > (1L << 30)) return 0;
  if (*end == '\0' || !strcasecmp(end, "g") || !strcasecmp(end, "gib")) {
    if (number > (1L << 20)) return 0;
    number *= 1024;
  } else if (strcasecmp(end, "m") && strcasecmp(end, "mib")) {
    return 0;
  }
  return number >= 256 ? number : 0;
}

#endif
