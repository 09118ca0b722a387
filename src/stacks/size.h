// SPDX-License-Identifier: Apache-2.0
// The size and rank of a stack's lease. Pure functions.
#pragma once

#include "stacks/stack.h"

#include <vector>

namespace sublet::stacks {

// Reads x-sublet of a Compose file, as JSON: {"vram": "16GiB", "gpus": 1, "tier": "batch", "exclusive": true,
// "pausable": true, "gpu_spec": "cc>=8.0", "interposer": true, "share": 30}. "": it has none. An error names the stack
// and the field.
Result<Settings> parse_extension(std::string_view name, const std::string& text);

enum class Source { exclusive, set, file, peak, device };  // where the size comes from
std::string_view to_string(Source source);

struct Size {
  Bytes vram;  // on each device
  int devices = 1;
  core::Tier tier = core::Tier::standard;
  bool exclusive = false;
  bool pausable = true;
  Source source = Source::device;
  std::string gpu_spec{};   // description of its devices; "": any
  bool interposer = false;  // its containers with the GPU get the library
  int share = 0;            // percent of the computing time of each device; 0: no bound
};

// The lease that a stack needs. Settings of the administrator go before those of the file. Without a size, the peak of
// earlier uses and a tenth more is taken; without a peak a whole device. `capacities`: bytes of each device
// that it may have, without those of unleased processes, in any order.
Size choose_size(const Settings& set, const Settings& file, Bytes peak, std::vector<Bytes> capacities);

}  // namespace sublet::stacks
