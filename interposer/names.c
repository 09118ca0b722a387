/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"

static const char* const names[HOOKS] = {
#define HOOK(name, family) #name,
#define WRITTEN(name, family) #name,
#include "generated/exports.inc"
#undef HOOK
#undef WRITTEN
};

static const struct {
  const char* text;
  uint32_t size;
  int needs_hook;
} prefixes[] = {
#define PREFIX(text, size, needs_hook) {#text, size, needs_hook},
#define PROBE(name)
#include "generated/families.inc"
#undef PREFIX
#undef PROBE
};

static int compare(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return (unsigned char)*a - (unsigned char)*b;
}

int sublet_same(const char* a, const char* b) { return compare(a, b) == 0; }

int sublet_begins(const char* text, const char* prefix) {
  while (*prefix != '\0' && *text == *prefix) ++text, ++prefix;
  return *prefix == '\0';
}

void sublet_copy_name(char* out, const char* name, size_t size) {
  size_t at = 0;
  for (; at + 1 < size && name[at] != '\0'; ++at) out[at] = name[at];
  out[at] = '\0';
}

int sublet_hook_of(const char* name) {
  int low = 0, high = HOOKS - 1;
  while (low <= high) {
    const int middle = (low + high) / 2;
    const int order = compare(name, names[middle]);
    if (order == 0) return middle;
    if (order < 0) high = middle - 1;
    else low = middle + 1;
  }
  return -1;
}

int sublet_needs_hook(const char* name) {
  /* The debugger's functions and variables begin with a small letter after "cu". */
  if (name[0] != 'c' || name[1] != 'u' || name[2] < 'A' || name[2] > 'Z') return 0;
  uint32_t longest = 0;
  int needs = 1;
  for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; ++i)
    if (prefixes[i].size > longest && sublet_begins(name, prefixes[i].text)) {
      longest = prefixes[i].size;
      needs = prefixes[i].needs_hook;
    }
  return needs;
}

const char* sublet_name(int hook) { return names[hook]; }
