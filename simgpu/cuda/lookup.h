// SPDX-License-Identifier: Apache-2.0
// The generated table of all exports (generate.py from exports.tsv).
#pragma once

#include <cstddef>

namespace simgpu {

struct Lookup {
  const char* name;  // what cuGetProcAddress calls it
  int version;       // from which it can be had
  int generation;    // 1 for the first form of a function, 2 for _v2
  bool per_thread;
  void (*function)();
};

extern const Lookup lookups[];
extern const std::size_t lookup_count;

}  // namespace simgpu
