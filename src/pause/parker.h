// SPDX-License-Identifier: Apache-2.0
// Parks the programs of leases, and unparks them. A lease has one order at a time; different leases run in parallel.
// Belongs to the loop thread. Nothing here blocks; results are reported on the loop.
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "lease/obstacle.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace sublet::pause {

struct ParkOutcome {
  enum class Kind {
    done,     // all processes are parked, or all living processes run
    undone,   // of park: no process is parked or locked, and all run as before
    unknown,  // a process is or may be parked or locked: unpark must be tried again
    final,    // a process can never be restored, because the driver failed it for good; all others run
  };
  Kind kind = Kind::unknown;
  // none when done. A word of gpu::CheckpointRefusal, or `stuck`: a driver call was given up and still runs; `helper`:
  // there was none, or it ended; `tree_changing`: new processes came faster than they were locked; `failed`: final;
  // `withdrawn`: the engine forbade the lock; `host_memory`: the engine forbade parking after the lock;
  // `measure_timeout`: the engine did not answer in time; `internal`: our bug.
  core::ObstacleCode code{};
  std::string detail{};               // a sentence that names the process; "" when done
  std::vector<ProcessRef> parked{};   // processes whose VRAM is on the host now, as far as known
  std::optional<Bytes> host_bytes{};  // of park: growth of their host memory; unset: not measured
  Duration took{0};
};

// Memory that must be free on a device before a process of a lease is restored there.
struct Room {
  std::string uuid;                     // UUID of the device
  Bytes all;                            // bytes for all processes
  std::map<ProcessRef, Bytes> of = {};  // bytes for each process, if known
  Bytes margin{};                       // additional bytes, if they are free
  // Greatest number of bytes that can ever be free there, besides those that the lease holds there.
  std::optional<Bytes> most{};
  bool holds = false;  // the lease holds bytes there: allocated since the pause, or never parked
};

class Parker {
 public:
  // Facts about the program.
  struct Program {
    bool vouched = false;  // the owner vouches that the driver can park it (docs/decisions/0021)
    int devices = 1;       // number of devices of its lease
  };
  // Returns the living processes of a lease, unordered. An exception becomes the outcome `internal`.
  using List = std::function<std::vector<ProcessRef>()>;
  // Asks whether it may lock these processes, which are all of this order so far. Gets one answer, at once or later.
  using Touch = std::function<void(std::vector<ProcessRef>, std::function<void(bool may)>)>;
  // Asks, with all of these locked, whether they may be parked: "" or why not. Gets one answer, at once or later.
  using Weigh = std::function<void(std::vector<ProcessRef>, std::function<void(std::string why_not)>)>;
  using Done = std::function<void(ParkOutcome)>;
  virtual ~Parker() = default;

  // Parks the lease, all processes or none. Calls `list` at once, and again when all are locked, so that new children
  // are locked too.
  //
  // Refuses before any change if a process that uses CUDA cannot be parked, or if `touch` forbids it. Unlocks all if
  // `weigh` forbids it, or if either does not answer in time; a later answer is ignored. If a step fails, all are
  // unlocked. Processes that are parked by then stay so (`unknown`), because a restore needs free memory.
  //
  // A driver call that has not returned after `give_up` ends the order at once (`unknown`). unpark resumes the others
  // then.
  virtual void park(LeaseId lease, Program program, Duration give_up, List list, Touch touch, Weigh weigh,
                    Done done) = 0;

  // Restores and unlocks the processes. Done when all living processes were seen to run. `tree`: the processes that may
  // have been changed; this Parker knows those that it parked itself. Makes sure of the memory on all devices before
  // the first restore; without it (`no_room`) no restore is tried. Does not wait again for a call that was given up.
  virtual void unpark(LeaseId lease, std::vector<ProcessRef> tree, std::vector<Room> room, Duration give_up,
                      Done done) = 0;

  virtual bool busy(LeaseId lease) const = 0;  // an order is running

  // `told` is called when a call that was given up has returned. The next unpark finds out its effect.
  virtual void when_returned(std::function<void(LeaseId)> told) = 0;

  // The lease has ended. `done` of a running order is not called.
  virtual void forget(LeaseId lease) = 0;
};

}  // namespace sublet::pause
