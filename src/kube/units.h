// SPDX-License-Identifier: Apache-2.0
// The units of memory that the kubelet counts. A unit belongs to a card: its id is "UUID::NUMBER". Pure functions.
#pragma once

#include "base/units.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::kube {

struct Card {
  std::string id;  // "gpu0"
  std::string uuid;
  std::string name;     // product
  int index = 0;        // of the driver
  Bytes capacity;       // largest lease on the empty card
  bool healthy = true;  // false: lost, or out of service
  bool simulated = false;
  bool operator==(const Card&) const = default;
};

struct UnitRules {
  Bytes unit{512 * MiB};
  double overcommit = 1;  // declared memory by the memory of a card; 1 to 16
};

// The resource of the device plugin: "sublet.dev/vram-512mi". The unit is whole MiB.
std::string resource_name(Bytes unit);

// Number of units that a card declares.
std::int64_t units_of(const Card& card, const UnitRules& rules);

std::string unit_id(const std::string& uuid, std::int64_t number);
// The card of a unit. Unset: this is no id of a unit.
std::optional<std::string> card_of_unit(std::string_view id);

// BadRequest with the numbers if a list of all units is larger than a message of the kubelet may be.
Status check_list_size(const std::vector<Card>& cards, const UnitRules& rules);

// Number of units on each card, by UUID. Ids of other forms do not count.
std::map<std::string, std::int64_t> count_by_card(const std::vector<std::string>& ids);

// The card of most of the units; "" without units.
std::string main_card(const std::vector<std::string>& ids);

// The units of a lease for the containers of a pod: its cards, and the largest number on one of them. A container sees
// the card that most of its units are on. `starting`: ids of the container that starts, which is not among the
// containers if it is an init container. `init`: largest number of units of an init container.
struct UnitNeed {
  std::vector<std::string> cards;
  std::int64_t count = 0;
};
UnitNeed need_of_units(const std::vector<std::vector<std::string>>& containers,
                       const std::vector<std::string>& starting, std::int64_t init);

// Chooses `count` of the available units, all on one card if any has enough. A card whose memory is not given away yet
// comes first, and of these the fullest; then the card that is over-committed least. Units of `needed` are always
// chosen.
std::vector<std::string> choose_units(const std::vector<Card>& cards, const UnitRules& rules,
                                      const std::vector<std::string>& available, const std::vector<std::string>& needed,
                                      std::int64_t count);

}  // namespace sublet::kube
