// SPDX-License-Identifier: Apache-2.0
// Loaded code: modules (of a context), libraries (of no context), and the functions and kernels in them.
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
  std::map<int, int> attributes;  // those that were set
};

// A module or a library; `context` is null for the latter.
struct Code {
  Context* context = nullptr;
  bool library = false;
  Image image;
  std::map<std::string, std::unique_ptr<Function>> functions;
  // Variables of the module by context: memory of cuMemAlloc's kind, made when it is first asked for.
  std::map<std::pair<Context*, std::string>, std::uint64_t> variables;
};

// The driver's lock is held by the callers of these.
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
