// SPDX-License-Identifier: Apache-2.0
// The capability share: processes of a lease behind the interposer take a share of the computing time of its devices at
// most. The library holds their launches back. This part has the pages of that, compares the result with the card, and
// tells it. Belongs to the loop thread.
#pragma once

#include "credit/shares.h"
#include "engine/capability.h"
#include "engine/engine.h"
#include "share/audit.h"
#include "share/files.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace sublet::share {

class Shares final : public engine::Capability, public credit::Shares {
 public:
  // Keeps a reference. Call Capabilities::add() with it. `directory`: of the share pages.
  Shares(engine::Engine& engine, std::string directory) : engine_(engine), files_(std::move(directory)) {}

  // --- credit::Shares ---
  int percent(LeaseId lease) const override;
  Result<Fd> page(LeaseId lease, std::uint32_t devices) override;
  std::uint32_t take_use(LeaseId lease, const std::string& device, const credit::ComputeUse& use) override;

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  void measured(Time now) override;
  Time due(Time now) override;
  std::vector<engine::Warning> warnings(Time now) const override;
  // "share_use": the time that processes of a lease with a share have taken and waited.
  std::string lease_field(std::string_view name, const core::Lease& lease) const override;

 private:
  struct OnDevice {
    credit::ComputeUse use;
    Audit audit;
  };
  void forget_ended();

  engine::Engine& engine_;
  Files files_;
  std::set<LeaseId> pages_;                                    // of these leases are there
  std::map<LeaseId, std::map<std::string, OnDevice>> leases_;  // by uuid
};

}  // namespace sublet::share
