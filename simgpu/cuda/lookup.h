// SPDX-License-Identifier: Apache-2.0
// The generated table of all exports (generate.py makes it from exports.tsv).
#pragma once

#include <cstddef>

namespace simgpu {

struct Lookup {
  const char* name;  // name of the function for cuGetProcAddress
  int version;       // first driver version that has the function
  int generation;    // 1 for the first form of a function, 2 for _v2
  bool per_thread;
  void (*function)();
};

extern const Lookup lookups[];
extern const std::size_t lookup_count;

}  // namespace simgpu
