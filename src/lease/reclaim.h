// SPDX-License-Identifier: Apache-2.0
// The terms by which the memory of a lease may be taken for leases that wait. Plain data; not stored.
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "lease/lease.h"
#include "lease/pause_cause.h"

#include <optional>
#include <string>

namespace sublet::core {

// The lease may be a victim although its tier does not yield to the waiter's, if no lease that yields by its tier is
// enough. It counts while the lease is active.
struct Reclaim {
  // How its memory is taken.
  enum class Taken {
    pause,      // it is paused, and comes back as its owner wants
    turn,       // it is paused, and waits for its memory again from that moment on
    give_back,  // the capability gives memory back, and ends no work
    end,        // the capability ends it: the last resort
  };
  PauseCauseKind cause = PauseCauseKind::idle;  // a lease has one of each cause
  Taken taken = Taken::pause;
  Tier least = Tier::spot;  // for waiters of this tier or a higher one
  ReasonArgs args = {};     // of the cause
  // The time since then is an argument of the cause, under this name; "": it is not told.
  Time since = {};
  std::string since_as = {};

  bool is_paused() const { return taken == Taken::pause || taken == Taken::turn; }
  bool operator==(const Reclaim&) const = default;
};

}  // namespace sublet::core
