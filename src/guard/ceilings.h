// SPDX-License-Identifier: Apache-2.0
// Watches the leases that have a ceiling or a soft limit. Belongs to the loop thread.
#pragma once

#include "engine/engine.h"
#include "guard/ceiling.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace sublet::guard {

class Ceilings {
 public:
  Ceilings(engine::Engine& engine, bool for_all) : engine_(engine), for_all_(for_all) {}

  // The limits of the lease. Without a program that Sublet started, a lease has none: nobody here may end it.
  Limits limits_of(const core::Lease& lease) const;
  void loaded();
  void decided(const core::Plan& plan);
  void measured(Time now);
  // Warns, pauses and ends by the last reading. Returns when the next reading is due.
  Time due(Time now);

 private:
  struct Watched {
    std::map<std::string, std::pair<Bytes, Time>> last{};  // by device: bytes in use, and when they were read
    std::int64_t rate = 0;                                 // the fastest growth seen, in bytes a second
    Limits limits{};                                       // since `limited_at`: only later readings count against them
    Time limited_at{};
    Time lowered_at{};    // when its ceiling was last lowered
    bool warned = false;  // it is over its soft limit, and was told
    Time paused_at{};     // when it was paused for being over its soft limit
  };
  // A lease that is over one of its limits on a device.
  struct Over {
    LeaseId lease;
    Act act = Act::none;
    std::string device;  // its name, "gpu0"
    Bytes used;
    Limits limits;
  };

  void note(const core::Lease& lease);
  void measure(const core::Lease& lease, Watched& watched, Time now);
  void act_on(Over over, Time now);
  void warn(const Over& over);
  void pause(const Over& over, Time now);
  bool is_wanted(const core::Lease& lease) const;

  engine::Engine& engine_;
  const bool for_all_;
  std::map<LeaseId, Watched> watched_;
  std::vector<Over> over_;  // by the last reading; not yet acted on
  Time next_ = Time::never();
};

}  // namespace sublet::guard
