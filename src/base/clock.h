// SPDX-License-Identifier: Apache-2.0
// The only place that reads a clock (checked by tools/check_tree.py). All other code is given a Time.
#pragma once

#include "base/units.h"

namespace sublet {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;  // never decreases; any thread
  // The Time minus CLOCK_MONOTONIC, in nanoseconds.
  virtual std::int64_t offset_ns() const = 0;
  // Moves the clock forward to `time`, unless the clock is already past it.
  virtual void go_on_from(Time time) = 0;
  // Returns how long the machine has slept since the last call, or since the clock was made, to a second. Zero: it has
  // not slept. The clock moves forward by this time, so that it stays near the wall clock. Called on the thread that
  // calls now().
  virtual Duration take_sleep() = 0;

  Time at_monotonic(std::int64_t monotonic) const { return {monotonic + offset_ns()}; }
};

// The daemon's clock, see Time. `not_before` is the last time in the store. If the wall clock was set back while the
// daemon was down, the clock starts at `not_before`.
class SystemClock final : public Clock {
 public:
  explicit SystemClock(Time not_before = {});
  Time now() const override;
  std::int64_t offset_ns() const override { return offset_ns_; }
  void go_on_from(Time time) override;
  Duration take_sleep() override;

 private:
  std::int64_t offset_ns_;
  std::int64_t slept_ns_;
};

// A clock for tests: the test moves it. `start` is the time at which the simulated CLOCK_MONOTONIC is `monotonic_ns`.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(Time start = {1'000'000'000'000}, std::int64_t monotonic_ns = 0)
      : monotonic_ns_(monotonic_ns), offset_ns_(start.ns - monotonic_ns) {}
  Time now() const override { return {monotonic_ns_ + offset_ns_}; }
  std::int64_t offset_ns() const override { return offset_ns_; }
  void go_on_from(Time time) override {
    if (time > now()) offset_ns_ = time.ns - monotonic_ns_;
  }
  Duration take_sleep() override { return {}; }
  void advance(Duration d) { monotonic_ns_ += d.count(); }
  std::int64_t monotonic_ns() const { return monotonic_ns_; }

 private:
  std::int64_t monotonic_ns_, offset_ns_;
};

Time wall_time();             // may be set to any value at any time; safe in a signal handler
std::int64_t monotonic_ns();  // CLOCK_MONOTONIC: stops while the host sleeps
std::int64_t slept_ns();      // how long the host has slept since it was booted

}  // namespace sublet
