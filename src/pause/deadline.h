// SPDX-License-Identifier: Apache-2.0
// A deadline for an answer. The loop itself may stop for a while (it is stopped, or its machine is overloaded); this
// time does not count. The deadline is over only one look after it ran out, because an answer that came in time may
// still lie in a socket.
#pragma once

#include "base/units.h"

#include <chrono>
#include <cstdint>
#include <utility>

namespace sublet::pause {

// Times are CLOCK_MONOTONIC in nanoseconds.
class Deadline {
 public:
  static constexpr Duration interval = std::chrono::milliseconds(50);  // time between two looks
  // A later look means that the loop was stopped: no load delays it so much.
  static constexpr Duration longest_lag = std::chrono::seconds(1);

  Deadline() = default;
  Deadline(std::int64_t now_ns, Duration at_most)
      : began_ns_(now_ns), until_ns_(now_ns + at_most.count()), look_ns_(now_ns + interval.count()) {}

  // Whether the deadline is over. Call it at each look, an interval after the last one.
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
  std::int64_t look_ns_ = 0;  // time of the next look
  bool ran_out_ = false;      // state at the last look
};

}  // namespace sublet::pause
