// SPDX-License-Identifier: Apache-2.0
// The work of leases' programs, as far as it is known: from the utilisation in each reading of the devices, and from
// calls of the leases' owners. Nothing of it is stored: a restart of the daemon counts as activity. Loop thread.
#pragma once

#include "lease/plan.h"
#include "state/state.h"

#include <string_view>
#include <unordered_map>

namespace sublet::engine {

struct LeaseActivity {
  enum class State { busy, idle, unknown };
  State state = State::unknown;  // in the last reading; unknown counts as busy
  // When activity was last seen: work, an unknown state, a call of the owner, or the grant. It is idle since
  // then. 0: the lease was never seen active.
  Time last{};
  bool operator==(const LeaseActivity&) const = default;
};
std::string_view to_string(LeaseActivity::State state);

// The work of the lease's processes on one of its devices since the last reading. Without a listed process it did
// nothing. A process without a figure of its own is judged by that of the device.
LeaseActivity::State activity_on(const core::DeviceReading& reading, LeaseId lease);

class Activities {
 public:
  // Takes in the newest reading of each device. Only active leases change; others keep what was last known.
  void observe(const core::State& state, const core::Rules& rules, Time now);
  // The owner of the lease did something by a call.
  void touch(LeaseId lease, Time now);
  // The time of a clock gap is no idleness.
  void forgive(Duration gap);
  // Its idle time goes on where its pause began. A pause by its idle rule was idle time itself.
  void resumed(const core::Resumed& lease);
  // A lease that was never seen active is unknown. So is an active lease without a fresh reading of its devices.
  LeaseActivity of(LeaseId lease, const core::State& state, const core::Rules& rules, Time now) const;

 private:
  struct Known {
    LeaseActivity activity;
    bool was_active = false;  // in the last reading
  };
  std::unordered_map<LeaseId, Known> known_;
  Time observed_{};  // the last reading
};

}  // namespace sublet::engine
