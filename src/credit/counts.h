// SPDX-License-Identifier: Apache-2.0
// Launches, bytes and errors of processes, as they say in their use pages (wire/limit.h). Sums stop at the largest
// number.
#pragma once

#include "wire/limit.h"

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace sublet::credit {

// A program may say any codes: no more than this number are told apart.
inline constexpr std::size_t most_codes = 16;
// Codes of the driver are smaller.
inline constexpr std::uint32_t largest_code = 9999;

struct Counts {
  std::int64_t launches = 0;                       // of kernels and graphs
  std::int64_t copied = 0;                         // bytes
  std::int64_t allocated = 0;                      // bytes
  std::map<std::uint32_t, std::int64_t> errors{};  // by code
  std::int64_t other_errors = 0;                   // of other codes
  // ns by device, in the order of the limit page: time of the device that launches were charged, and that they waited.
  std::array<std::int64_t, SUBLET_LIMIT_DEVICES> busy{}, waited{};

  std::int64_t all_errors() const;  // of all codes
  std::int64_t all_busy() const;    // on all devices
  std::int64_t all_waited() const;
  void add(const Counts& more);
  void add_errors(std::uint32_t code, std::int64_t number);
  // The difference to an earlier page. Nothing is less than zero.
  Counts since(const Counts& before) const;
  bool operator==(const Counts&) const = default;
};

// Reads each word of a page once. Zero before the process has taken the page.
Counts read_counts(const sublet_use_page& page);

}  // namespace sublet::credit
