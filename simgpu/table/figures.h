// SPDX-License-Identifier: Apache-2.0
// The figures of one card that a specification or `simgpu-ctl card` sets. A figure that nobody set has the value that
// the libraries make up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace simgpu {

namespace layout {
struct DeviceRecord;
}

enum class Figure : unsigned {
  temperature,         // degrees Celsius
  power,               // milliwatts
  sm_clock,            // MHz
  memory_clock,        // MHz
  pcie_generation,     // in use
  pcie_lanes,          // in use
  nvlinks,             // links that are up
  cc,                  // compute capability; 90 is 9.0
  ecc_corrected,       // errors of the memory
  ecc_uncorrected,     // double-bit errors; a launch meets none by it
  retirement_pending,  // 0 or 1; not supported until it is set
  remapping_pending,   // 0 or 1
  remapping_failed,    // 0 or 1
  xid,                 // number of a critical event that happens now
  count_,
};

struct FigureInfo {
  Figure figure;
  std::string_view key, help;
};
const std::vector<FigureInfo>& figures();
std::optional<Figure> figure_from_key(std::string_view key);

inline constexpr std::uint64_t unsupported = ~std::uint64_t{0};  // the driver does not support the figure of this card

// Parses the value of a figure: a number, "8.0" for a compute capability, or "unsupported".
std::optional<std::uint64_t> parse_figure(Figure figure, std::string_view text);

void set_figure(layout::DeviceRecord& device, Figure figure, std::uint64_t value);
// Returns `otherwise` for a figure that nobody set, and nothing for one that is not supported.
std::optional<std::uint64_t> figure_of(const layout::DeviceRecord& device, Figure figure, std::uint64_t otherwise);

// The critical events of a card: how many there were, and the number of the last.
struct Xids {
  std::uint64_t count = 0;
  std::uint64_t last = 0;
};
Xids xids_of(const layout::DeviceRecord& device);

}  // namespace simgpu
