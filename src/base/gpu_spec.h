// SPDX-License-Identifier: Apache-2.0
// The description of the devices that a lease may have: "name=A100*,memory>=40GiB,cc>=8.0,link=nvlink". Pure functions.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet {

inline constexpr std::size_t longest_gpu_spec = 1000;

// A device as a description sees it.
struct DescribedGpu {
  std::string name;
  Bytes total;
  std::optional<int> capability;   // compute capability; 90 is 9.0; unset: not told
  std::optional<bool> has_nvlink;  // an NVLink link is up; unset: not told
};
// "NVIDIA A100-SXM4-80GB, 80 GiB, cc 8.0, nvlink".
std::string describe(const DescribedGpu& gpu);

// "8.0" is 80, "9" is 90.
std::optional<int> parse_capability(std::string_view text);

class GpuSpec {
 public:
  // An error names the part that is wrong.
  static Result<GpuSpec> parse(std::string_view text);

  bool matches(const DescribedGpu& gpu) const;

 private:
  enum class Operator { equal, not_equal, less, at_most, greater, at_least };
  struct Part {
    std::string field;
    Operator how{};
    std::string pattern;      // of a name or a link
    std::int64_t number = 0;  // bytes, or a compute capability
  };
  static Result<Part> parse_part(std::string_view text);
  static bool holds(const Part& part, const DescribedGpu& gpu);

  std::vector<Part> parts_;
};

}  // namespace sublet
