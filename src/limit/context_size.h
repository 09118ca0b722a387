// SPDX-License-Identifier: Apache-2.0
// Learns the bytes of a context on a device: what the card shows of a process beyond the bytes that the process has
// charged. Values only; one thread at a time.
#pragma once

#include "base/units.h"

#include <optional>
#include <string>
#include <utility>

namespace sublet::limit {

// A process on a device at a reading.
struct Sight {
  Bytes charged;  // by the account of the process
  Bytes used;     // by the card
  bool operator==(const Sight&) const = default;
};

// No context is as large, and none is smaller than a block of the card.
inline constexpr Bytes largest_context = 4 * GiB, smallest_context = 2 * MiB;

class ContextSize {
 public:
  // Takes a sight of a process that charges `given` for a context. Returns a smaller size than was known, or the first.
  // The account and the card are not read at the same moment: only two equal sights after each other count. Memory that
  // is charged may not be on the card, as managed memory: a known size only becomes smaller by a process that has
  // nothing but its context, and to half of it at most.
  std::optional<Bytes> learn(std::optional<Sight>& last, const Sight& now, Bytes given);

  Bytes bytes() const { return known_.value_or(Bytes{}); }
  const std::string& driver() const { return driver_; }
  void set(Bytes bytes, std::string driver) { known_ = bytes, driver_ = std::move(driver); }
  // Another version of the driver has contexts of another size.
  void check_driver(const std::string& now) {
    if (!now.empty() && std::exchange(driver_, now) != now) known_.reset();
  }

 private:
  std::string driver_;  // its version
  std::optional<Bytes> known_;
};

inline std::optional<Bytes> ContextSize::learn(std::optional<Sight>& last, const Sight& now, Bytes given) {
  const bool is_steady = last == now;
  last = now;
  const Bytes size = now.used - (now.charged - given);
  if (!is_steady || now.charged < given || size < smallest_context || size > largest_context) return std::nullopt;
  if (known_ && (now.charged != given || size >= *known_ || size < Bytes{known_->count / 2})) return std::nullopt;
  known_ = size;
  return size;
}

}  // namespace sublet::limit
