// SPDX-License-Identifier: Apache-2.0
// The capability share: processes of a lease behind the interposer take a share of the computing time of its devices at
// most. The library holds their launches back. This part has the pages of that, compares the result with the card, and
// tells it. It slows down programs that use more. Belongs to the loop thread.
#pragma once

#include "credit/shares.h"
#include "engine/capability.h"
#include "engine/engine.h"
#include "share/audit.h"
#include "share/throttle.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace sublet::share {

class Shares final : public engine::Capability, public credit::Shares {
 public:
  // Keeps a reference. Call Capabilities::add() with it. `interval_idle`: between readings of a machine at rest.
  Shares(engine::Engine& engine, Duration interval_idle);

  // --- credit::Shares ---
  int percent(LeaseId lease) const override;
  Result<int> page(LeaseId lease, std::uint32_t devices) override;
  std::uint32_t take_use(LeaseId lease, const std::string& device, const credit::ComputeUse& use,
                         const std::set<ProcessRef>& members) override;

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  Time due(Time now) override;
  Time due_without_store(Time now) override { return due(now); }
  std::vector<engine::Warning> warnings(Time now) const override;
  // "share_use": the time that processes of a lease with a share have taken and waited.
  std::string lease_field(std::string_view name, const core::Lease& lease) const override;

 private:
  struct OnDevice {
    Audit audit;
    credit::ComputeUse use{};
    std::set<ProcessRef> held{};  // processes that the use is of
  };
  OnDevice& on(LeaseId lease, const std::string& device);
  // The limit of processor time of a lease's program.
  struct Slowed {
    Excess excess;       // at the beginning
    std::string device;  // uuid of the device with this excess
    Throttle throttle{};
    int in_force = 0;          // percent of one processor; 0: not limited
    bool is_asked = false;     // the newest order is not answered
    bool is_answered = false;  // an order was answered
    std::string why_not{};     // why the program is not limited
    bool is_final = false;     // it cannot be limited, and no other order is given
    Time lift_again{};         // after an order to lift the limit has failed
    std::string logged{};      // the newest failure
  };
  void look_at(const core::Lease& lease, const std::string& device);
  void forget_ended();
  Time slow(const core::Lease& lease, Time now);
  void order(LeaseId lease, Slowed& slowed);
  void answered(LeaseId lease, int percent, const machine::CpuLimited& done);

  engine::Engine& engine_;
  const Duration longest_window_;
  std::map<LeaseId, Fd> pages_;
  std::map<LeaseId, std::map<std::string, OnDevice>> leases_;  // by uuid
  std::map<LeaseId, Slowed> slowed_;
};

}  // namespace sublet::share
