// SPDX-License-Identifier: Apache-2.0
// Reads through NVML how cards are linked with each other: NVLink, PCIe switch, NUMA node. A function that the library
// or a card lacks leaves its links unknown. Any call may hang for ever.
#pragma once

#include "base/links.h"
#include "gpu/nvml_api.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace sublet::gpu {

// Two of several things that share something.
using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;

// The group of each of the first `count` things, over any number of pairs: the least of its members. -1: it is alone.
// Pairs may name further things, such as switches.
std::vector<int> groups_of(std::size_t count, const Pairs& pairs);

// The links of these cards, in their order; a group is the place of a card.
std::vector<Links> read_links(const NvmlApi& api, const std::vector<NvmlDevice>& cards);

}  // namespace sublet::gpu
