// SPDX-License-Identifier: Apache-2.0
// Makes the program of a lease give up its VRAM, and gives it back. One order for one lease at a time, several leases
// beside each other. Belongs to the loop thread; nothing here blocks, and what came of an order is told on the loop.
#pragma once

#include "base/ids.h"
#include "base/units.h"

#include <functional>
#include <map>
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
  // A word of gpu::CheckpointRefusal, or: `stuck`, a driver call was given up and is out; `helper`, there was none or
  // it ended; `grows`, processes that use CUDA came faster than they were locked; `failed`, final; `withdrawn`, they
  // may not be locked; `outgrown`, locked they may not be parked; `unsaid`, in time nobody said whether they may;
  // `internal`, our bug. "" when done.
  std::string code{};
  std::string detail{};               // one sentence that names the process; "" when done
  std::vector<ProcessRef> parked{};   // whose VRAM is on the host now, as far as known
  std::optional<Bytes> host_bytes{};  // of park: how much they grew on the host; unset: not measured
  Duration took{0};
};

// What has to be free on a card before a process of a lease is restored there.
struct Room {
  std::string uuid;                     // of the card
  Bytes all;                            // for all of its processes
  std::map<ProcessRef, Bytes> of = {};  // for each, where that is known
  Bytes margin{};                       // beside it, where there is so much
  std::optional<Bytes> most{};          // as much as can ever be free there, beside what it holds there itself
  bool holds = false;                   // some there, as is seen: what it took since, or what was never parked
};

class Parker {
 public:
  // What its owner said, and what is known of it.
  struct Program {
    bool vouched = false;  // its owner's word is that the driver can park it (docs/decisions/0021)
    int devices = 1;       // that its lease has
  };
  // The living processes of a lease, in any order. What it throws is an outcome, `internal`.
  using List = std::function<std::vector<ProcessRef>()>;
  // Asks whether it may lock these processes, all of this order so far; is answered once, at once or later.
  using Touch = std::function<void(std::vector<ProcessRef>, std::function<void(bool may)>)>;
  // Asks, when all of these are locked, whether they may be parked as they are; is answered once, at once or later:
  // "", or why not.
  using Weigh = std::function<void(std::vector<ProcessRef>, std::function<void(std::string why_not)>)>;
  using Done = std::function<void(ParkOutcome)>;
  virtual ~Parker() = default;

  // Asks `list` at once, and again when all are locked: whoever was forked meanwhile is locked as well. All or
  // nothing: refused before anything is touched when one that uses CUDA cannot be parked, or `touch` does not allow it,
  // and unlocked again when `weigh` does not, or either has not answered in time: what it says after that is nobody's.
  // When a step fails all are unlocked; who is parked by then stays so (`unknown`), for to restore it needs room. A
  // call that has not returned after `give_up` ends it at once, `unknown`, with all as it is then: unpark brings the
  // others back.
  virtual void park(LeaseId lease, Program program, Duration give_up, List list, Touch touch, Weigh weigh,
                    Done done) = 0;

  // Brings back whoever of these is parked or locked, and is done when all that live were seen to run. `tree`: those
  // that may have been touched; of what this Parker parked itself it knows who takes part. The room on all cards is
  // made sure of before the first restore, and when it is not there (`no_room`) none is tried. A call that was given up
  // and has not returned is not waited for again.
  virtual void unpark(LeaseId lease, std::vector<ProcessRef> tree, std::vector<Room> room, Duration give_up,
                      Done done) = 0;

  virtual bool busy(LeaseId lease) const = 0;  // an order is under way

  // Told each time that a call of a lease was given up and has returned: the next unpark will find out what came of it.
  virtual void when_returned(std::function<void(LeaseId)> told) = 0;

  // The lease has ended. Of an order under way nobody is told.
  virtual void forget(LeaseId lease) = 0;
};

}  // namespace sublet::engine
