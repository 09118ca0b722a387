// SPDX-License-Identifier: Apache-2.0
// Parks and brings back whole leases by the driver's checkpoint: every process of a lease that uses CUDA, each through
// a helper of its own (checkpoint_helper.h). One order for one lease at a time, several leases beside each other.
// Belongs to the loop thread; nothing here blocks.
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "gpu/checkpoint_line.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sublet::engine {

struct ParkerOptions {
  std::string helper;  // path of sublet-gpu
  std::string driver;  // absolute path of the CUDA driver's library; "" = where the vendor installs it
  Duration lock_timeout = std::chrono::seconds(10);  // for one process to finish the work that it has submitted
  Duration call_timeout = std::chrono::minutes(5);   // then a driver's call counts as stuck; a lock has both
};

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
  // A call of this lease that was stuck has returned: the next unpark will find out what came of it.
  using Returned = std::function<void(LeaseId)>;

  Parker(boost::asio::io_context& io, ParkerOptions options, Returned returned = {});
  ~Parker();  // the helpers end by themselves; nobody is told of what was under way
  Parker(const Parker&) = delete;
  Parker& operator=(const Parker&) = delete;

  // Asks `list` at once, and again when all are locked: whoever was forked meanwhile is locked as well. All or
  // nothing: refused before anything is touched when one that uses CUDA cannot be parked; undone when a step fails.
  // A call that gets stuck ends it at once, `unknown`, with all as it is then: unpark brings the others back.
  void park(LeaseId lease, List list, Done done);

  // Brings back whoever is parked or locked. `tree`: the living processes, for those that were not parked by this
  // Parker: of what it parked itself it knows who takes part. The ballast of all cards is taken before the first
  // restore, and when it does not fit (`no_room`) none is tried.
  void unpark(LeaseId lease, std::vector<ProcessRef> tree, std::vector<gpu::BallastWish> ballast, Done done);

  bool busy(LeaseId lease) const;   // an order is under way
  bool stuck(LeaseId lease) const;  // a driver call for it is out since longer than it should be

  // The lease has ended: its helpers end, which unlocks processes that only wait; one that is parked stays so. Of an
  // order under way nobody is told. A stuck helper is kept, so that its process never gets a second.
  void forget(LeaseId lease);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sublet::engine
