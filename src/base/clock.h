// SPDX-License-Identifier: Apache-2.0
// The only place that reads a clock (checked by tools/check_tree.py). Everything else is handed a Time.
#pragma once

#include "base/units.h"

namespace sublet {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;  // never decreases; any thread
};

// The daemon's time line, see Time. `not_before` is the last time the store has seen: if the wall clock was set back
// while the daemon was down, time goes on from there instead of going back.
class SystemClock final : public Clock {
 public:
  explicit SystemClock(Time not_before = {});
  Time now() const override;
  // How long the machine has slept since this was last asked, or since the clock was made, to a second; zero: not at
  // all. The line moves on by as much: it stays near the wall clock. By the thread that asks for the time.
  Duration take_sleep();
  Time at_monotonic(std::int64_t monotonic) const { return {monotonic + offset_ns_}; }
  std::int64_t offset_ns() const { return offset_ns_; }  // of the time line from CLOCK_MONOTONIC

 private:
  std::int64_t offset_ns_;
  std::int64_t slept_ns_;
};

class ManualClock final : public Clock {
 public:
  explicit ManualClock(Time start = {1'000'000'000'000}) : now_(start) {}
  Time now() const override { return now_; }
  void advance(Duration d) { now_ = now_ + d; }

 private:
  Time now_;
};

std::int64_t monotonic_ns();  // CLOCK_MONOTONIC: stands still while the host sleeps
std::int64_t slept_ns();      // how long the host has slept since it was booted

}  // namespace sublet
