// SPDX-License-Identifier: Apache-2.0
#include "gpu/topology.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace sublet::gpu {
namespace {

constexpr unsigned most_links = 64;  // of one card; the vendor's limit was 18 until now

// The vendor's structure, as its drivers fill it.
struct Pci {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};
static_assert(sizeof(Pci) == 68);

// The vendor's levels of a common ancestor: the larger, the farther.
constexpr int level_multiple_switches = 20, level_node = 40;

using StateCall = int (*)(NvmlDevice, unsigned, unsigned*);
using RemoteCall = int (*)(NvmlDevice, unsigned, Pci*);
using PlaceCall = int (*)(NvmlDevice, Pci*);
using AncestorCall = int (*)(NvmlDevice, NvmlDevice, int*);

template <typename Call>
Call find(const NvmlApi& api, const char* name) {
  return reinterpret_cast<Call>(api.find(name));
}

// The far end of a link is another card, or a switch, which many cards share.
Pairs nvlink_pairs(const NvmlApi& api, const std::vector<NvmlDevice>& cards) {
  const auto state = find<StateCall>(api, "nvmlDeviceGetNvLinkState");
  const auto remote = find<RemoteCall>(api, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  const auto place = find<PlaceCall>(api, "nvmlDeviceGetPciInfo_v3");
  Pairs pairs;
  if (state == nullptr || remote == nullptr || place == nullptr) return pairs;
  std::map<std::tuple<unsigned, unsigned, unsigned>, std::size_t> places;
  for (std::size_t i = 0; i < cards.size(); ++i)
    if (Pci pci{}; place(cards[i], &pci) == 0) places.emplace(std::tuple(pci.domain, pci.bus, pci.device), i);
  std::size_t next = cards.size();
  for (std::size_t i = 0; i < cards.size(); ++i) {
    for (unsigned link = 0; link < most_links; ++link) {
      unsigned is_up = 0;
      if (state(cards[i], link, &is_up) != 0) break;  // it has no more
      Pci pci{};
      if (is_up != 1 || remote(cards[i], link, &pci) != 0) continue;
      const auto [end, is_new] = places.try_emplace({pci.domain, pci.bus, pci.device}, next);
      next += is_new;
      pairs.emplace_back(i, end->second);
    }
  }
  return pairs;
}

}  // namespace

std::vector<int> groups_of(std::size_t count, const Pairs& pairs) {
  std::size_t all = count;
  for (const auto& [a, b] : pairs) all = std::max({all, a + 1, b + 1});
  std::vector<std::size_t> parent(all);
  std::iota(parent.begin(), parent.end(), std::size_t{0});
  const auto root = [&parent](std::size_t its) {
    while (parent[its] != its) its = parent[its] = parent[parent[its]];
    return its;
  };
  for (const auto& [a, b] : pairs) {
    const std::size_t one = root(a), other = root(b);
    parent[std::max(one, other)] = std::min(one, other);
  }
  std::vector<int> members(all);
  for (std::size_t i = 0; i < count; ++i) ++members[root(i)];
  std::vector<int> groups(count, -1);
  for (std::size_t i = 0; i < count; ++i)
    if (members[root(i)] > 1) groups[i] = static_cast<int>(root(i));
  return groups;
}

std::vector<Links> read_links(const NvmlApi& api, const std::vector<NvmlDevice>& cards) {
  Pairs same_switch, same_node;
  const auto ancestor = find<AncestorCall>(api, "nvmlDeviceGetTopologyCommonAncestor");
  for (std::size_t i = 0; i < cards.size() && ancestor != nullptr; ++i) {
    for (std::size_t j = i + 1; j < cards.size(); ++j) {
      int level = -1;
      if (ancestor(cards[i], cards[j], &level) != 0 || level < 0) continue;
      if (level <= level_multiple_switches) same_switch.emplace_back(i, j);
      if (level <= level_node) same_node.emplace_back(i, j);
    }
  }
  const std::array ways{groups_of(cards.size(), nvlink_pairs(api, cards)), groups_of(cards.size(), same_switch),
                        groups_of(cards.size(), same_node)};
  std::vector<Links> links(cards.size());
  for (std::size_t i = 0; i < cards.size(); ++i)
    for (std::size_t way = 0; way < ways.size(); ++way) links[i].group[way] = ways[way][i];
  return links;
}

}  // namespace sublet::gpu
