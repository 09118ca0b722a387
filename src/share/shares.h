// SPDX-License-Identifier: Apache-2.0
// The capability share: processes of a lease behind the interposer take a share of the computing time of its devices at
// most. The library holds their launches back. This part has the pages of that, compares the result with the card, and
// tells it. Belongs to the loop thread.
#pragma once

#include "credit/shares.h"
#include "engine/capability.h"
#include "engine/engine.h"
#include "share/audit.h"

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
  void look_at(const core::Lease& lease, const std::string& device);
  void forget_ended();

  engine::Engine& engine_;
  const Duration longest_window_;
  std::map<LeaseId, Fd> pages_;
  std::map<LeaseId, std::map<std::string, OnDevice>> leases_;  // by uuid
};

}  // namespace sublet::share
