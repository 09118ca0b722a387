// SPDX-License-Identifier: Apache-2.0
// The only place that reads a clock (checked by tools/check_tree.py). Everything else is handed a Time.
#pragma once

#include "base/units.h"

namespace sublet {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;  // never decreases; any thread
  // Of the time line from CLOCK_MONOTONIC, nanoseconds.
  virtual std::int64_t offset_ns() const = 0;
  // The line goes on from there, if it is not that far yet.
  virtual void go_on_from(Time time) = 0;
  // How long the machine has slept since this was last asked, or since the clock was made, to a second; zero: not at
  // all. The line moves on by as much: it stays near the wall clock. By the thread that asks for the time.
  virtual Duration take_sleep() = 0;

  Time at_monotonic(std::int64_t monotonic) const { return {monotonic + offset_ns()}; }
};

// The daemon's time line, see Time. `not_before` is the last time the store has seen: if the wall clock was set back
// while the daemon was down, time goes on from there instead of going back.
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

// Its owner moves it. `start` is the time when the simulated CLOCK_MONOTONIC stands at `monotonic_ns`.
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

Time wall_time();             // may be set to anything at any time; safe in a signal handler
std::int64_t monotonic_ns();  // CLOCK_MONOTONIC: stands still while the host sleeps
std::int64_t slept_ns();      // how long the host has slept since it was booted

}  // namespace sublet
