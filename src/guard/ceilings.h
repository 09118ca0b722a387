// SPDX-License-Identifier: Apache-2.0
// Watches the leases that have a ceiling or a soft limit. Belongs to the loop thread.
#pragma once

#include "engine/engine.h"
#include "engine/reclaimable.h"
#include "guard/ceiling.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sublet::guard {

class Ceilings {
 public:
  // `for_all`: leases without a ceiling have their size as one. `soft_cpu`: percent of one processor for a program
  // above its soft limit; 0: it is not limited.
  Ceilings(engine::Engine& engine, bool for_all, int soft_cpu)
      : engine_(engine),
        reclaimable_(engine, core::PauseCauseKind::soft_limit),
        for_all_(for_all),
        soft_cpu_(soft_cpu) {}

  // The limits of the lease. Without a program that Sublet started, a lease has none: nobody here may end it.
  Limits limits_of(const core::Lease& lease) const;
  // One sentence if the lease uses more than its soft limit by the last reading; "" otherwise.
  std::string over_soft_limit(const core::Lease& lease) const;
  void loaded();
  void happened(const core::Plan& plan);
  void measured(Time now);
  // Warns, pauses and ends by the last reading. Returns when the next reading is due.
  Time due(Time now);

 private:
  // Whether the processor time of a program is limited. asked: the actor has not answered yet. refused: it cannot be.
  enum class Slowed { no, asked, yes, refused };
  struct Seen {
    Bytes used{};                  // at the last reading
    Time at{};                     // when that was read
    double rate = 0;               // growth up to that reading, in bytes a second
    std::optional<Bytes> asked{};  // in use when it was asked to end
    Bytes held{};                  // the most in use until the request can have reached it
  };
  struct Watched {
    std::map<std::string, Seen> last{};  // by device
    std::int64_t rate = 0;               // the fastest growth seen, in bytes a second
    Limits limits{};                     // since `limited_at`: only later readings count against them
    Time limited_at{};
    Lowering lowering{};
    bool killed = false;  // SIGKILL was ordered
    bool warned = false;  // it is over its soft limit, and was told
    Slowed slowed = Slowed::no;
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
  std::optional<Stage> stage_of(const core::Lease& lease) const;
  Reading take(const core::Lease& lease, const core::Device& device, Stage stage, Watched& watched) const;
  void measure(const core::Lease& lease, Stage stage, Watched& watched, Time now);
  void act_on(Over over, Time now);
  void approach(const Over& over, Watched& watched);
  void let_run(LeaseId lease, Watched& watched);
  void warn(const Over& over, std::optional<std::string> unlimited);
  void declare(const Over& over, Time now);

  engine::Engine& engine_;
  engine::Reclaimable reclaimable_;  // leases over their soft limits
  const bool for_all_;
  const int soft_cpu_;
  std::map<LeaseId, Watched> watched_;
  std::vector<Over> over_;         // by the last reading; not yet acted on
  std::vector<LeaseId> not_over_;  // that are declared, and are not over their soft limits any more
  Time next_ = Time::never();
};

}  // namespace sublet::guard
