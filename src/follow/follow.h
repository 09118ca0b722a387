// SPDX-License-Identifier: Apache-2.0
// The capability follow: leases whose programs leave their place. A killed keeper ends a program in the foreground.
// Memory on a device that was not leased is told, and ended by the enforcer's policy. A program that holds nothing,
// while processes without a lease appear beside it, is warned of. Belongs to the loop thread.
#pragma once

#include "engine/capability.h"
#include "engine/engine.h"
#include "engine/records.h"
#include "follow/rules.h"

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace sublet::follow {

struct Options {
  Duration interval = std::chrono::seconds(15);     // enforcer.interval
  Duration start_grace = std::chrono::seconds(30);  // enforcer.start_grace
  // The administrator's wish for this process; unset: the enforcer is switched off.
  std::function<Treatment(ProcessRef)> treatment = {};
};

class Follow final : public engine::Capability {
 public:
  // Keeps a reference. Call Capabilities::add() with it.
  Follow(engine::Engine& engine, Options options);

  // A new lease: its program runs on without its keeper, or ends with it. Call it before the lease is stored.
  void submitted(const core::Lease& lease, bool keep_running);

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  void happened(const core::Plan& plan, Time now) override;
  void measured(Time) override { fresh_ = true; }
  void keeper_lost(LeaseId lease) override { lost_.try_emplace(lease); }
  Time due(Time now) override;
  std::vector<engine::Warning> warnings(Time now) const override;

 private:
  using Place = std::pair<LeaseId, std::string>;  // the lease, and the uuid of the device

  // A keeper that was killed.
  struct Loss {
    bool told = false;  // its lease has the reason
  };

  bool end_without_keeper(LeaseId id, Loss& loss);
  void look_at_strays(Time now);
  Treatment treatment_on(const core::Device& device, LeaseId lease) const;

  engine::Engine& engine_;
  Options options_;
  std::set<LeaseId> keep_running_;
  engine::Records<LeaseId> rows_;  // of `keep_running_`
  std::map<LeaseId, Loss> lost_;   // not decided yet
  std::map<Place, Sightings> strays_;
  bool fresh_ = false;  // there is a reading that was not looked at
};

}  // namespace sublet::follow
