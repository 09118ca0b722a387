// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.h"

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sublet {

// The public id of a lease: a number that only grows, and that a store never uses twice. Text form "lease-7".
struct LeaseId {
  std::uint64_t number = 0;  // 0: none
  constexpr auto operator<=>(const LeaseId&) const = default;
  explicit constexpr operator bool() const { return number != 0; }
};

std::string to_string(LeaseId id);
Result<LeaseId> parse_lease_id(std::string_view text);  // "lease-7" or "7"

// Names a process by its pid and its start time in clock ticks since boot (/proc/PID/stat field 22). This is enough to
// recognise the process, but not enough to signal it: a signal needs a pidfd.
struct ProcessRef {
  std::int32_t pid = 0;  // 0: none
  std::uint64_t start_ticks = 0;
  constexpr auto operator<=>(const ProcessRef&) const = default;
  explicit constexpr operator bool() const { return pid != 0; }
};

}  // namespace sublet

template <>
struct std::hash<sublet::LeaseId> {
  std::size_t operator()(sublet::LeaseId id) const noexcept { return std::hash<std::uint64_t>{}(id.number); }
};

template <>
struct std::hash<sublet::ProcessRef> {
  std::size_t operator()(const sublet::ProcessRef& p) const noexcept {
    return std::hash<std::uint64_t>{}(p.start_ticks * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(p.pid));
  }
};
