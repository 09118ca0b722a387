// SPDX-License-Identifier: Apache-2.0
// Answers for people, computed from the state when asked; reads only, may walk the queue.
#pragma once

#include "explain/bound.h"
#include "explain/projection.h"
#include "lease/reason_args.h"
#include "lease/rules.h"
#include "state/holder.h"
#include "state/state.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::core {
class Nominations;
}

namespace sublet::explain {

struct QueueInfo {
  std::size_t place = 0;                      // 1 = next
  Bytes short_bytes;                          // bytes missing on the nearest device
  std::string device;                         // uuid of that device, "" if none is known
  Bytes free;                                 // bytes that may still be promised on that device, 0 or more
  Bytes unleased;                             // bytes without a lease on that device
  std::vector<core::Holder> holders;          // of that device, largest first
  std::vector<std::string> reserved_devices;  // uuids of devices with memory reserved for it
  LeaseId reserved_for;         // the lease for which memory is reserved where this one would fit; none otherwise
  std::string held_text;        // `reserved_for` as a sentence
  std::optional<Duration> eta;  // expected wait from now; unset: unknown
  std::string basis;            // the source of the estimate, or why there is none
  std::optional<Bound> bound;   // the longest wait that the rules allow; unset: there is no bound
};

// Places and expected starts of waiters at one moment; asking for several costs little more than asking for one. Valid
// only while the state stays as it is. `projections`: kept by the caller for its next estimates; null: by nobody.
class Estimates {
 public:
  Estimates(const core::State& state, const core::Rules& rules, Time now, Projections* projections = nullptr);
  ~Estimates();
  QueueInfo of(const core::Lease& lease);

 private:
  void estimate_start(const core::Lease& lease, QueueInfo& info);  // sets its eta and basis; its place is known
  std::string basis_text(const core::Lease& lease, const Projection::Start& start) const;
  std::string why_unknown(const core::Lease& waiter) const;

  const core::State& state_;
  const core::Rules& rules_;
  const Time now_;
  Projections own_;
  Projections& projections_;
  std::shared_ptr<Projection> projection_;  // null until it is needed
  std::unique_ptr<core::Nominations> held_;
};

QueueInfo queue_info(const core::State& state, const core::Rules& rules, const core::Lease& lease, Time now);

// The time from now until a time slice pauses the lease; unset: unknown. Set only while leases of the same tier wait
// for it.
std::optional<Duration> leaves_in(const core::State& state, LeaseId lease, Time now);

// Why no pause method could pause the lease, whatever its state and the host memory are now; "": one could.
std::string why_never_paused(const core::State& state, const core::Lease& lease);

// Advice that would help the lease, in plain words, the best first; for `sublet why`.
std::vector<std::string> what_would_help(const core::State& state, const core::Rules& rules, const core::Lease& lease,
                                         Time now);

// The cause of a pause as it is now: the lease for which it was paused may have its memory, or be gone.
core::PauseCause cause_now(const core::State& state, const core::PauseCause& cause);

}  // namespace sublet::explain
