// SPDX-License-Identifier: Apache-2.0
// MIG slices and their cards, and devices that use the memory of the machine.
#pragma once

#include "state/devices.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::core {

// Memory of the machine that is left out of a lease of a whole unified device: the use of the system varies.
inline constexpr Bytes unified_margin = 512 * MiB;
// The problem of a card that is leased as slices only.
inline constexpr std::string_view in_mig_mode = "the card is in MIG mode, and only its slices are leased";
// The problem of a device that vanished without an error.
inline constexpr std::string_view not_listed = "the driver no longer lists it";

// The driver begins the uuids of MIG slices so.
inline constexpr char slice_prefix[] = "MIG-";
inline bool is_slice(std::string_view uuid) { return uuid.starts_with(slice_prefix); }
// The device for whose sake this one is out of service: itself, or the card of the slice; null: it is in service.
const std::string* closed_by(const State& state, std::string_view uuid);
// Why this reading contradicts what is known of other devices; "" if it does not. A device with the memory of the
// machine stands alone, and a card is no whole card while one of its slices may be there.
std::string reading_conflict(const State& state, const DeviceReading& reading, const Rules& rules, Time now);
// The card of a missing slice, if the driver does not answer about the card: the slice may still be there. Else null.
const DeviceReading* unread_card(const Device& slice, const std::vector<DeviceReading>& readings);
// A slice that is gone, or a card that is divided into slices: an admin changed the machine, and no device failed.
bool is_reconfigured(const Device& device);
// The size of a lease of the whole device: what unleased processes leave. On a unified device the system uses memory
// too, and always a little more or less.
Bytes usable_of(const Device& device, const Rules& rules);
// Devices that were ever read and are no slices.
std::int64_t count_whole(const State& state);
// Bytes that leases may use on a unified device, and that the driver does not tell.
Bytes untold_on(const State& state, const Device& device);
// The part of what was promised on unified devices that programs have not used yet.
Bytes promised_of_machine(const State& state);

}  // namespace sublet::core
