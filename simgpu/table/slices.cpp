// SPDX-License-Identifier: Apache-2.0
#include "slices.h"

#include <algorithm>
#include <cstdio>

#include "table.h"

namespace simgpu {

using namespace layout;

namespace {

constexpr std::uint64_t granule = 2 << 20;

// The least number that none of the slices has.
template <typename Number>
std::uint64_t unused(const std::vector<unsigned>& slices, std::uint64_t number, Number number_of) {
  while (std::any_of(slices.begin(), slices.end(), [&](unsigned slice) { return number_of(slice) == number; }))
    ++number;
  return number;
}

// A slice that is made anew in the same place with the same size has the same UUID.
std::array<std::uint8_t, 16> uuid_of_slice(const DeviceRecord& card, std::uint64_t instance, const Profile& profile) {
  std::array<std::uint8_t, 16> uuid = card.uuid;
  uuid[0] ^= static_cast<std::uint8_t>(0x80 | instance);
  uuid[1] ^= static_cast<std::uint8_t>(profile.parts);
  uuid[2] ^= static_cast<std::uint8_t>(profile.bytes >> 30);
  uuid[3] ^= static_cast<std::uint8_t>(profile.bytes >> 38);
  return uuid;
}

}  // namespace

std::optional<unsigned> parent_of(const Cards& table, unsigned place) {
  if (place < max_devices || place >= max_places) return std::nullopt;
  const std::uint64_t parent = table.device[place].parent.load();
  return parent == 0 ? std::nullopt : std::optional(static_cast<unsigned>(parent - 1));
}

std::vector<unsigned> slices_of(const Cards& table, unsigned card) {
  std::vector<unsigned> slices;
  for (unsigned place = max_devices; place < max_places; ++place)
    if (parent_of(table, place) == card) slices.push_back(place);
  std::sort(slices.begin(), slices.end(),
            [&](unsigned a, unsigned b) { return table.device[a].slice.load() < table.device[b].slice.load(); });
  return slices;
}

std::optional<unsigned> add_slice(Cards& table, unsigned card, const Profile& profile,
                                  const std::function<bool(unsigned)>& is_free) {
  const DeviceRecord& parent = table.device[card];
  const std::vector<unsigned> there = slices_of(table, card);
  for (unsigned place = max_devices; place < max_places; ++place) {
    if (parent_of(table, place) || (is_free && !is_free(place))) continue;
    DeviceRecord& slice = table.device[place];
    slice.instance = unused(there, 1, [&](unsigned other) { return table.device[other].instance.load(); });
    slice.slice = unused(there, 0, [&](unsigned other) { return table.device[other].slice.load(); });
    slice.parts = profile.parts;
    slice.total = profile.bytes;
    slice.reserve = parent.reserve / granule * profile.bytes / parent.total * granule;
    slice.uuid = uuid_of_slice(parent, slice.instance.load(), profile);
    slice.pci_domain = parent.pci_domain;
    slice.pci_bus = parent.pci_bus;
    slice.pci_device = parent.pci_device;
    const std::string name = std::string(parent.name.data()) + " MIG " + format_profile(profile);
    std::snprintf(slice.name.data(), slice.name.size(), "%s", name.c_str());
    slice.parent = card + 1;  // from here on it exists
    return place;
  }
  return std::nullopt;
}

std::optional<unsigned> Table::parent_of(unsigned place) const { return simgpu::parent_of(*map_, place); }

std::vector<unsigned> Table::slices_of(unsigned card) const { return simgpu::slices_of(*map_, card); }

std::vector<unsigned> Table::places() const {
  std::vector<unsigned> all;
  for (unsigned card = 0; card < device_count(); ++card) all.push_back(card);
  for (unsigned card = 0; card < device_count(); ++card)
    for (const unsigned slice : slices_of(card)) all.push_back(slice);
  return all;
}

bool Table::is_usable(unsigned place) const {
  return place < max_devices ? place < device_count() && !in_mig_mode(place) : parent_of(place).has_value();
}

bool Table::is_lost(unsigned place) const {
  return !is_usable(place) || meet(FaultKind::device_lost, static_cast<int>(place)).has_value();
}

void Table::set_mig_mode(unsigned card, bool on) {
  map_->device[card].mig = on ? 1 : 0;
  for (const unsigned slice : slices_of(card)) destroy_slice(slice);
}

void Table::destroy_slice(unsigned place) { map_->device[place].parent = 0; }

std::optional<unsigned> Table::create_slice(unsigned card, const Profile& profile, std::string* error) {
  std::uint64_t bytes = profile.bytes, parts = profile.parts;
  for (const unsigned slice : slices_of(card)) {
    bytes += map_->device[slice].total;
    parts += map_->device[slice].parts.load();
  }
  const bool fits = bytes <= map_->device[card].total && parts <= all_parts;
  std::optional<unsigned> made;
  // A program of the slice that was in a place before may still hold something there.
  if (in_mig_mode(card) && fits)
    made = add_slice(*map_, card, profile, [this](unsigned place) { return use(place).used() == 0; });
  if (!made && error != nullptr)
    *error = !in_mig_mode(card) ? "the card is not in MIG mode"
             : !fits            ? "the card has too little left for this slice"
                                : "all places for slices are taken";
  return made;
}

}  // namespace simgpu
