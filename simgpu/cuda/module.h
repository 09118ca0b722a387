// SPDX-License-Identifier: Apache-2.0
// Loaded code: modules (of a context), libraries (of no context), and their functions and kernels.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "driver.h"
#include "image.h"

namespace simgpu {

struct Code;

struct Function {
  Code* code = nullptr;
  Entry entry;
  std::map<int, int> attributes;  // the attributes that the program has set
};

// A module or a library; a library has a null `context`.
struct Code {
  Context* context = nullptr;
  bool library = false;
  Image image;
  std::map<std::string, std::unique_ptr<Function>> functions;
  // Variables of the module by context. The memory is like cuMemAlloc's, and is made at the first request.
  std::map<std::pair<Context*, std::string>, std::uint64_t> variables;
};

// The callers of these functions hold the driver's lock.
Function* known_function(const void* handle);
int function_attribute(const Function& function, CUfunction_attribute attribute);

inline constexpr int max_threads_per_block = 1024;
inline constexpr int max_shared_per_block = 48 << 10;
inline constexpr int max_shared_opt_in = 227 << 10;
inline constexpr int max_shared_per_processor = 228 << 10;
inline constexpr int max_threads_per_processor = 2048;
inline constexpr int max_blocks_per_processor = 32;
inline constexpr int registers_per_processor = 65536;

}  // namespace simgpu
