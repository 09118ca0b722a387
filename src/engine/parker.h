// SPDX-License-Identifier: Apache-2.0
// Makes the program of a lease give up its VRAM, and gives it back. One order for one lease at a time, several leases
// beside each other. Belongs to the loop thread; nothing here blocks, and what came of an order is told on the loop.
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "gpu/checkpoint_line.h"

#include <functional>
#include <string>
#include <vector>

namespace sublet::engine {

struct ParkOutcome {
  enum class Kind {
    done,     // all are parked, or all that live run
    undone,   // of park: nothing is parked or locked by it, and all run on as before
    unknown,  // something is or may be parked or locked: unpark has to be tried again
    final,    // all else is brought back, and a process of it cannot be: its driver has failed it for good
  };
  Kind kind = Kind::unknown;
  // A word of gpu::CheckpointRefusal, or: `stuck`, a driver call is out; `helper`, there was none or it ended; `grows`,
  // processes that use CUDA came faster than they were locked; `failed`, final; `internal`, our bug. "" when done.
  std::string code{};
  std::string detail{};              // one sentence that names the process; "" when done
  std::vector<ProcessRef> parked{};  // whose VRAM is on the host now, as far as known
  Bytes host_bytes{};                // of park: how much they grew on the host
  Duration took{0};
};

class Parker {
 public:
  // The living processes of a lease, in any order. What it throws is an outcome, `internal`.
  using List = std::function<std::vector<ProcessRef>()>;
  using Done = std::function<void(ParkOutcome)>;
  virtual ~Parker() = default;

  // Asks `list` at once, and again when all are locked: whoever was forked meanwhile is locked as well. All or
  // nothing: refused before anything is touched when one that uses CUDA cannot be parked; undone when a step fails.
  // A call that gets stuck ends it at once, `unknown`, with all as it is then: unpark brings the others back.
  virtual void park(LeaseId lease, List list, Done done) = 0;

  // Brings back whoever is parked or locked. `tree`: the living processes, for those that were not parked by this
  // Parker: of what it parked itself it knows who takes part. The ballast of all cards is taken before the first
  // restore, and when it does not fit (`no_room`) none is tried.
  virtual void unpark(LeaseId lease, std::vector<ProcessRef> tree, std::vector<gpu::BallastWish> ballast,
                      Done done) = 0;

  virtual bool busy(LeaseId lease) const = 0;   // an order is under way
  virtual bool stuck(LeaseId lease) const = 0;  // a driver call for it is out since longer than it should be

  // The lease has ended. Of an order under way nobody is told.
  virtual void forget(LeaseId lease) = 0;
};

}  // namespace sublet::engine
