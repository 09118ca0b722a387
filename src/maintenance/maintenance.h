// SPDX-License-Identifier: Apache-2.0
// The capability maintenance: devices that an admin takes out of service, or that go out of service by themselves,
// because they have an error. A drain pauses the leases there, and ends
// those that cannot be paused at its deadline. Belongs to the loop thread.
#pragma once

#include "engine/capability.h"
#include "engine/engine.h"
#include "engine/records.h"
#include "maintenance/errors.h"
#include "maintenance/rules.h"

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sublet::maintenance {

class Maintenance final : public engine::Capability {
 public:
  // Keeps a reference. Call Capabilities::add() with it. `cordon_on`: errors for which a device goes out of service.
  explicit Maintenance(engine::Engine& engine, Causes cordon_on = {});

  // The end of a session that saves its work.
  struct Sessions {
    // The time that its checkpoint command has; unset: the lease is of no session that saves its work.
    std::function<std::optional<Duration>(LeaseId)> checkpoint_time{};
    std::function<void(LeaseId, const std::string& why)> end{};
  };
  void set_sessions(Sessions sessions) { sessions_ = std::move(sessions); }

  // --- requests of admins; the rows are stored with the answer ---
  // Replaces what held for the device before. `out.device`: uuid of a known device.
  void take_out(OutOfService out);
  void take_back(const std::string& device);  // uuid
  const OutOfService* find(const std::string& device) const;

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  std::vector<core::Fact> first_facts() const override;
  void happened(const core::Plan& plan, Time now) override;
  void measured(Time) override { look_at_errors_ = true; }
  Time due(Time now) override;
  std::vector<engine::Warning> warnings(Time now) const override;
  // "service": what holds for the device as a JSON object; "null": it is in service.
  std::string device_field(std::string_view name, const std::string& device) const override;

 private:
  // A lease that has memory of a drained device, or has just ended there.
  struct Resident {
    LeaseId lease;
    std::string state;    // a state of the lease
    std::string problem;  // why it is not paused; "" if it is, or may be
    bool stays = false;   // it keeps the drain from being done
  };
  std::vector<Resident> residents(const OutOfService& out) const;
  std::string problem_of(const core::Lease& lease) const;
  std::string state_of(const OutOfService& out, Time now) const;  // "cordoned", "draining", "drained" or "late"
  Time carry_on(const OutOfService& out, Time now);
  Time save(const OutOfService& out, const core::Lease& lease, Time now);
  void cordon_failed(Time now);
  void know(const std::string& device, const Errors& errors);
  void pause(const OutOfService& out, const core::Lease& lease, Time now);
  void end(const OutOfService& out, const core::Lease& lease);
  void tell_unpausable(const OutOfService& out, const core::Lease& lease, Time now);
  void tell_changes(Time now);
  std::string name_of_device(const std::string& device) const;  // "gpu1"
  core::ReasonArgs args_of(const OutOfService& out) const;

  engine::Engine& engine_;
  std::map<std::string, OutOfService> out_;  // by uuid
  std::map<std::string, Errors> known_;      // by uuid of the card: errors for which it is not cordoned again
  engine::Records<std::string> rows_;        // of `out_` by uuid, and of `known_` by "errors " and the uuid
  Causes cordon_on_;
  bool look_at_errors_ = false;  // there is a new reading
  Sessions sessions_;
  std::map<LeaseId, Tried> tried_;             // since the start of this daemon
  std::set<LeaseId> told_;                     // leases that were told that they cannot be paused
  std::map<std::string, std::string> states_;  // by uuid: the state that the last event told
};

}  // namespace sublet::maintenance
