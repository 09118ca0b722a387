// SPDX-License-Identifier: Apache-2.0
// Reads the facts about a program's code: the kernels of a PTX text with their parameters, and the names in a binary.
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
  // Facts of a kernel as the binary states them; 0 where nothing is known.
  int registers = 0, shared_bytes = 0, constant_bytes = 0;
};

struct Variable {
  std::string name;
  std::uint64_t size = 0;
};

struct Image {
  int ptx_version = 0;  // compute capability of the target: 80 is 8.0; 0 for binaries
  std::vector<Entry> entries;
  std::vector<Variable> variables;
  // The contents of a fat binary may be compressed. The simulation then assumes that every requested name is in it.
  bool any_name = false;
};

// Reads an image. Errors: INVALID_PTX for text that is not PTX, INVALID_IMAGE for any other unknown form.
CUresult read_image(const void* image, Image& out);
CUresult read_ptx(std::string_view text, Image& out);

}  // namespace simgpu
