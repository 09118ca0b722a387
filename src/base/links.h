// SPDX-License-Identifier: Apache-2.0
// How devices are linked with each other. Plain data.
#pragma once

#include <array>
#include <string_view>

namespace sublet {

// The ways, the best first.
enum class Linked { nvlink, pcie_switch, numa, nothing };
inline constexpr std::array<std::string_view, 4> linked_names{"nvlink", "pcie_switch", "numa", "nothing"};  // by Linked
inline constexpr int link_levels = static_cast<int>(Linked::nothing);

// Devices with the same number in a place are linked in that way. -1: with no other, or the driver does not tell.
struct Links {
  std::array<int, link_levels> group{-1, -1, -1};  // by Linked
  int in(Linked way) const { return group[static_cast<std::size_t>(way)]; }
  bool operator==(const Links&) const = default;
};

}  // namespace sublet
