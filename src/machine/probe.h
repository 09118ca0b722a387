// SPDX-License-Identifier: Apache-2.0
// The source of snapshots. Belongs to the loop thread; all results are reported later, on the loop.
#pragma once

#include "base/units.h"
#include "gpu/snapshot.h"

#include <cstdint>
#include <functional>
#include <string>

namespace sublet::machine {

// A driver that takes longer for a snapshot may hang: what was read before it counts no more.
inline constexpr Duration late_after = std::chrono::seconds(2);

class Probe {
 public:
  struct Events {
    // `asked_ns`: CLOCK_MONOTONIC when the snapshot was requested; it began no earlier
    std::function<void(gpu::GpuSnapshot, std::int64_t asked_ns)> snapshot;
    std::function<void(std::string problem)> problem;
    // The driver takes long for a snapshot, which may still come.
    std::function<void(std::string problem)> late;
  };
  virtual ~Probe() = default;

  // Starts taking snapshots: every interval (shorter while busy), and at once on demand.
  virtual void start(Events events) = 0;
  virtual void stop() = 0;
  virtual void take_now() = 0;
  virtual void set_busy(bool busy) = 0;

  virtual const std::string& library() const = 0;  // NVML library of the last answer
  virtual const std::string& driver_version() const = 0;
  virtual const std::string& problem() const = 0;  // "" while it answers
};

}  // namespace sublet::machine
