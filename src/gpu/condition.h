// SPDX-License-Identifier: Apache-2.0
// The condition of a device: figures that decide nothing about memory. Plain values, and their form in the JSON lines
// of sublet-gpu.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace sublet::gpu {

// An unset figure: the driver does not tell it, or tells a number that no device can have.
struct Facts {
  std::optional<std::int64_t> celsius{};
  std::optional<std::int64_t> milliwatts{};
  std::optional<std::int64_t> limit_milliwatts{};
  std::optional<std::int64_t> millijoules{};  // since the driver was loaded
  std::optional<std::int64_t> sm_mhz{};
  std::optional<std::int64_t> memory_mhz{};
  std::optional<std::int64_t> link_generation{};      // of PCIe, in use
  std::optional<std::int64_t> link_lanes{};           // of PCIe, in use
  std::optional<std::int64_t> max_link_generation{};  // of PCIe, what card and slot can do
  std::optional<std::int64_t> max_link_lanes{};       // the same
  std::optional<std::int64_t> link_replays{};         // of PCIe, since the driver was loaded
  std::optional<std::int64_t> nvlinks{};              // links that are up
  std::optional<std::int64_t> capability{};           // compute capability; 90 is 9.0
  std::optional<std::int64_t> corrected_errors{};     // of the memory, since the driver was loaded
  std::optional<std::int64_t> uncorrected_errors{};   // the same; double-bit errors
  std::optional<std::int64_t> retirement_pending{};   // 1: pages are retired at the next load of the driver
  std::optional<std::int64_t> remapping_pending{};    // 1: rows are remapped at the next reset
  std::optional<std::int64_t> remapping_failed{};     // 1: a row could not be remapped once
  std::optional<std::int64_t> last_xid{};             // newest critical event since the start of the reader
  std::optional<std::int64_t> falls{};                // events that say that the device has fallen off the bus
  bool operator==(const Facts&) const = default;
};

// A figure, with its name in JSON and the numbers that a device can have.
struct FactField {
  const char* name;
  std::optional<std::int64_t> Facts::*figure;
  std::int64_t least, most;
};
extern const std::array<FactField, 20> fact_fields;

nlohmann::json to_json(const Facts& facts);  // an object with the set figures
// Reads the object. Returns "", or its first problem.
std::string read_facts(const nlohmann::json& json, Facts& facts);

}  // namespace sublet::gpu
