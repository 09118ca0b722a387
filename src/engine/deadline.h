// SPDX-License-Identifier: Apache-2.0
// The time that is given to somebody for an answer, by a loop that itself may not run for a while (it is stopped, or
// its machine starves): what it missed is not taken from them. It is over only one look after it ran out: what was said
// in time lies in a socket then, and is heard first.
#pragma once

#include "base/units.h"

#include <chrono>
#include <cstdint>
#include <utility>

namespace sublet::engine {

// Of CLOCK_MONOTONIC, in nanoseconds.
class Deadline {
 public:
  static constexpr Duration interval = std::chrono::milliseconds(50);  // between two looks
  static constexpr Duration longest_lag = std::chrono::seconds(1);     // of a look: no load makes a loop so slow

  Deadline() = default;
  Deadline(std::int64_t now_ns, Duration at_most)
      : began_ns_(now_ns), until_ns_(now_ns + at_most.count()), look_ns_(now_ns + interval.count()) {}

  // To be asked at each look, an interval after the last one.
  bool over(std::int64_t now_ns) {
    const std::int64_t lag = now_ns - std::exchange(look_ns_, now_ns + interval.count());
    if (lag > longest_lag.count()) began_ns_ += lag, until_ns_ += lag;
    return std::exchange(ran_out_, now_ns >= until_ns_) && ran_out_;
  }

  std::int64_t began_ns() const { return began_ns_; }
  std::int64_t until_ns() const { return until_ns_; }
  Duration given() const { return Duration(until_ns_ - began_ns_); }

 private:
  std::int64_t began_ns_ = 0, until_ns_ = 0;
  std::int64_t look_ns_ = 0;  // when the next look is due
  bool ran_out_ = false;      // as of the last look
};

}  // namespace sublet::engine
