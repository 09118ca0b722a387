// SPDX-License-Identifier: Apache-2.0
// What can be read of a program's code: the kernels of PTX text with their parameters, the names in a binary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simgpu/cuda_abi.h"

namespace simgpu {

struct Parameter {
  std::size_t offset = 0, size = 0;
};

struct Entry {
  std::string name;
  std::vector<Parameter> parameters;
  bool parameters_known = false;
  // As the binary says; 0 where nothing is known.
  int registers = 0, shared_bytes = 0, constant_bytes = 0;
};

struct Variable {
  std::string name;
  std::uint64_t size = 0;
};

struct Image {
  int ptx_version = 0;  // 80 is 8.0; 0 for binaries
  std::vector<Entry> entries;
  std::vector<Variable> variables;
  // A fat binary's contents may be compressed: then every name that is asked for is taken to be there.
  bool any_name = false;
};

// INVALID_PTX for text that is none, INVALID_IMAGE for anything else that is not known.
CUresult read_image(const void* image, Image& out);
CUresult read_ptx(std::string_view text, Image& out);

}  // namespace simgpu
