// SPDX-License-Identifier: Apache-2.0
// The beginning of simulated cards of unit tests: the test sends snapshots. One thread.
#pragma once

#include "base/clock.h"
#include "machine/probe.h"

#include <string>
#include <utility>

namespace sublet::machine {

class TestProbe : public Probe {
 public:
  explicit TestProbe(const ManualClock& clock) : clock_(clock) {}
  void start(Events events) override { events_ = std::move(events); }
  void stop() override {}
  void take_now() override {}
  void set_busy(bool) override {}
  const std::string& library() const override { return none_; }
  const std::string& driver_version() const override { return none_; }
  const std::string& problem() const override { return none_; }

 protected:
  // A card of 24 GiB.
  static gpu::GpuDevice card() {
    gpu::GpuDevice made;
    made.uuid = "GPU-1";
    made.name = "Simulated";
    made.simulated = true;
    made.total = 24 * GiB;
    return made;
  }
  void send(gpu::GpuDevice device) {
    gpu::GpuSnapshot snapshot;
    snapshot.devices.push_back(std::move(device));
    events_.snapshot(std::move(snapshot), clock_.monotonic_ns());
  }

 private:
  const ManualClock& clock_;
  Events events_;
  std::string none_;
};

}  // namespace sublet::machine
