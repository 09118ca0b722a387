// SPDX-License-Identifier: Apache-2.0
// Tells in the status of pods whether they have their memory: the condition sublet.dev/Resident, and merged events.
// Writes at most once a second, the oldest change first, and a pause only when it outlives some seconds. One thread;
// blocks while it writes.
#pragma once

#include "kube/daemon.h"
#include "kube/pod_record.h"
#include "kube/pods.h"

#include <map>
#include <optional>
#include <string>

namespace sublet::kube {

inline constexpr const char* resident_condition = "sublet.dev/Resident";
inline constexpr Duration shortest_told_pause = std::chrono::seconds(5);

// The condition as it should be.
struct Residence {
  bool resident = false;
  std::string reason;   // Granted, Queued, Preempted, Timeshare, Operator, Poisoned or NoLease
  std::string message;  // for people
  bool same_as(const Residence& other) const { return resident == other.resident && reason == other.reason; }
};
// Null: the pod has no lease. Pure.
Residence residence_of(const Held* lease);
// The body of the patch. `now`: the time of the change. Pure.
nlohmann::json condition_patch(const std::string& uid, const Residence& residence, Time now);

class ResidenceTeller {
 public:
  ResidenceTeller(const Settings& settings, const Daemon& daemon, const Pods& pods)
      : settings_(settings), daemon_(daemon), pods_(pods) {}

  // Looks at all leases of pods and writes one change, if there is any. Returns the time until it wants to be called
  // again; unset: when a lease changes.
  std::optional<Duration> work();

 private:
  struct Known {
    Residence wanted;                           // by its lease, at the last look
    std::optional<Residence> written;           // by us, or found in the pod
    std::optional<std::int64_t> differs_since;  // monotonic; of the first look at which wanted was not written
  };
  const Settings& settings_;
  const Daemon& daemon_;
  const Pods& pods_;
  std::map<std::string, Known> known_;  // by the uid of the group
  std::int64_t silent_until_ns_ = 0;    // one write a second

  // Writes the condition. Unavailable or Denied: nothing is written.
  Status write(const PodRecord& record, Known& known);
};

}  // namespace sublet::kube
