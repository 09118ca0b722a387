// SPDX-License-Identifier: Apache-2.0
// The invariants of a simulated run. The oracle follows what was read, stored and told, and looks at the simulated
// machine itself. It does not know how the core chooses: neither whom it pauses, nor when, nor for how long.
//
// The names on the right are the names of a failed run. Those without a file are checked in oracle*.cpp.
//
//   invariant                                            | name
//   -----------------------------------------------------+----------------------------------------------------------
//   1  no byte is promised twice                         | promised-twice; out-of-memory (world.cpp)
//   2  nothing is granted where nothing is known         | granted-on-a-guess
//   3  nothing is restored without free memory           | restored-while-blocked; memory-unsure (orders.cpp),
//                                                        |   restore-without-memory (world.cpp)
//   4  a paused lease was measured to hold its residue   | paused-unseen, paused-unlisted
//   5  a running lease has a running program             | never-restored, never-told-to-go-on
//   6  each parked program runs again, or its lease ends | never-came-back (simulation.cpp), left-parked, left-over,
//      or is poisoned, with a reason                     |   resume-lost, end-forgotten, orphaned-early
//   7  nothing is acted on before it is durable          | order-undecided, locked-unnoted (orders.cpp),
//                                                        |   signal-undecided (programs.cpp), parked-undurably
//   8  nothing is told before it is durable              | told-before-durable, event-before-durable,
//                                                        |   durable-by-mistake
//   9  nothing is decided and not stored                 | not-stored
//   10 no lease has two orders at once                   | two-orders, busy-unsaid, second-helper (orders.cpp)
//   11 an order does what was ordered, or undoes it all  | wrong-way, parked-by-halves, back-by-halves,
//                                                        |   undone-by-halves, locked-though-refused (orders.cpp)
//   12 pinned programs are not touched, nor those whose  | pinned-and-paused, parked-without-leave,
//      owner did not agree                               |   method-not-allowed
//   13 a parked program is not signalled                 | parked-program-signalled (programs.cpp)
//   14 the host budget is kept                           | ledger-limit, ledger-short, beyond-share,
//                                                        |   parked-under-pressure
//   15 parked memory stays off the swap device           | parked-where-it-swaps,
//                                                        |   swapped-though-kept, swap-unseen, kept-for-nothing
//   16 a victim is displaced for an entitled lease       | displaced-for-nobody
//   17 a lease is ended for others only if it is spot    | ended-without-word
//      and runs                                          |
//   18 no lease ends before its time                     | expired-early, gone-early, end-without-reason
//   19 no time limit is missed, none runs while parked   | offer-overdue, expiry-overdue, time-forgotten,
//                                                        |   offer-without-end, ttl-runs-while-parked
//   20 a lease takes only the steps of its life, with a  | transition, end-changed, parking-state, gang, unexplained,
//      reason and a growing generation                   |   generation-shrank, generation-stood, settled-alive
//   21 no number is given twice, no lease comes back     | id-again, submitted-twice (watched_store.cpp)
//   22 no lease, answer, event or time is lost in a      | store-prefix, events-lost, time-lost (watched_store.cpp),
//      crash                                             |   answer-forgotten (clients.cpp), time-went-back
//   23 a call with an old generation changes nothing     | old-generation (clients.cpp)
//   24 no lease waits that fits                          | waits-although-it-fits
//   25 each plan moves or ends in time                   | nobody-moves
//   26 the loop comes to rest, and everything ends       | never-rests, does-not-start (daemon.cpp), left-over
//   27 the core's own sums and indices hold              | check_state()
//   28 no grant takes a tenant over its limit            | tenant-over-limit
//   29 no lease within the guarantee of its tenant is    | guarantee-taken
//      paused for a lease whose tenant has none          |
//   30 a lease is paused for a quota only where its      | quota-unfounded
//      preemptor's tenant has one                        |
#pragma once

#include "engine/engine.h"
#include "watched_store.h"
#include "world.h"

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace sublet::sim {

class Oracle {
 public:
  Oracle(const Config& config, Verdict& verdict, const World& world);

  // A new life of the engine has begun, or its store was opened anew.
  void begin(const engine::Engine* engine, const WatchedStore* store, Time now);
  void ended() { engine_ = nullptr, held_.clear(); }
  // A clock gap until now, longer than any load explains.
  void stood_still(Time now);
  void lagged() { standing_.clear(), fits_since_.clear(); }  // a clock gap of any length
  void slept(Duration asleep) { lagged(), napped_ += asleep; }

  // Called as it happens.
  void reading(const gpu::GpuSnapshot& snapshot, Time began, const std::function<LeaseId(ProcessRef)>& lease_of);
  void intended(const store::Batch& batch);
  void requested(LeaseId lease) { requested_.insert(lease); }  // a user or admin requested memory for it
  bool wanted_back(LeaseId lease, bool back);  // notes the owner's last call, and returns the one before
  void revoked(LeaseId lease) { revoked_.insert(lease); }
  void told(LeaseId lease, std::uint64_t generation);
  void restores(LeaseId lease, const std::vector<pause::Room>& room);
  // The lease is told to yield, or these processes were weighed and may be parked.
  void parks(LeaseId lease, std::span<const ProcessRef> weighed);
  void held(LeaseId lease, bool held, Time now);

  void trace(bool on) { trace_ = on; }
  std::uint64_t leases_seen() const { return leases_seen_; }
  std::uint64_t pauses_seen() const { return pauses_seen_; }
  std::string why_parked() const;  // the last reason of each parked lease

  // `overdue`: an event of the simulated world is late, so that the daemon may be late as well.
  void after_step(bool overdue);
  // The run is over: nobody wants anything, and no fault is active.
  void at_rest();

 private:
  using Lease = core::Lease;
  using OnDevice = std::pair<LeaseId, std::string>;
  struct Reading {
    Time began;
    Bytes total, driver_reserved, used;
    std::map<LeaseId, Bytes> of;      // by lease; {}: of unleased processes
    std::map<LeaseId, Bytes> unseen;  // by lease: unlisted, and really on the device
    std::map<ProcessRef, Bytes> each;
    Bytes arrived;  // unlisted bytes of leases that are being restored

    Bytes used_by(LeaseId lease) const {
      const auto found = of.find(lease);
      return found == of.end() ? Bytes{} : found->second;
    }
  };
  struct End {
    Time at;
    Bytes each;  // charged on each of its devices until a later reading
    std::vector<std::string> devices;
  };
  struct Standing {
    Time since;
    std::vector<LeaseId> victims;
  };

  static bool is_on(const Lease& lease, const std::string& device);
  static bool may_be_on(const Lease& lease, const std::string& device);  // for a lease in the queue for its first grant
  static bool is_moving(const Lease& lease);
  static bool waits(const Lease& lease);

  // Each change as it is decided (oracle.cpp).
  void check_change(const Lease* before, const Lease& lease, const store::Batch& batch);
  void count(const Lease* before, const Lease& lease, Time now);
  void check_transition(const Lease& before, const Lease& lease);
  void check_parking(const Lease* before, const Lease& lease);
  void check_deferred_end(const Lease& before, const Lease& lease);

  // Promises and readings (oracle_promises.cpp).
  void read(const gpu::GpuSnapshot& judged, Time began, const std::function<LeaseId(ProcessRef)>& lease_of);
  Bytes arrived(const std::string& device, const Reading& reading,
                const std::function<LeaseId(ProcessRef)>& lease_of) const;
  std::optional<Bytes> seen_to_use(LeaseId lease, const std::string& device) const;
  const Reading* known(const std::string& device, Time now) const;
  void follow_return(const Lease* before, const Lease& lease);
  void follow_restart();
  Bytes claims(const std::string& device, const Reading& reading) const;
  Bytes residues(const std::string& device) const;
  void check_promise(const Lease& lease, Time now, bool wakes);

  // Tenants (oracle_tenants.cpp).
  const core::Tenant* tenant_of(const Lease& lease) const;  // null: no tree
  void check_tenant_limit(const Lease& lease) const;
  void check_guarantee(const Lease& lease) const;

  // Pauses (oracle_pauses.cpp).
  void check_displaced(const Lease& lease);
  void check_method(const Lease* before, const Lease& lease);
  void check_yielded(const Lease& lease);
  bool others_move(const Lease& lease, const std::string& device) const;
  void check_left_parked(const Lease& before, const Lease& lease);

  // Host memory and swap (oracle_host.cpp).
  void check_ledger(const Lease& lease);
  void check_share(const Lease& lease) const;
  void check_pressure(LeaseId id, double pressure) const;
  void check_swapped(const core::State& state) const;

  // After each step, and ends (oracle_state.cpp).
  static bool is_same(const Lease& stored, const Lease& lease);  // their pauses are
  void check_state(const core::State& state, Time now);
  void check_served(const core::State& state, Time now);
  void check_plans_move(const core::State& state, Time now);
  bool somebody_moves(const core::State& state, const std::string& device) const;
  void check_due(Time now);
  void check_durable();
  void check_end(const Lease* before, const Lease& lease, const store::Batch& batch);
  std::optional<Time> orphaned_since(const Lease& lease) const;
  bool takes_new_reading(const core::State& state);

  const Config& config_;
  Verdict& verdict_;
  const World& world_;
  const engine::Engine* engine_ = nullptr;
  const WatchedStore* store_ = nullptr;

  std::map<LeaseId, Lease> leases_;  // as last intended; ended leases until they settle
  std::set<LeaseId> over_;           // ended, in any life
  std::uint64_t last_id_ = 0;
  std::map<LeaseId, std::string> last_reasons_;
  std::uint64_t leases_seen_ = 0, pauses_seen_ = 0;

  std::map<std::string, Reading> readings_;  // by device: the newest credible reading
  std::map<std::string, Reading> believed_;  // by device: the newest one before it that the engine took
  std::set<std::string> unread_;             // devices whose newest reading is not credible
  std::map<LeaseId, End> ends_;              // leases that had a process, until a later reading
  std::map<OnDevice, Bytes> asked_;          // held when the lease was asked to yield
  std::map<LeaseId, Time> asked_at_;         // when that was
  std::map<OnDevice, Bytes> coming_;         // pausing or resuming: what the lease will hold
  std::map<std::string, Bytes> kept_;        // residues of leases that resume by the newest decision, by device

  std::set<LeaseId> held_;            // by connections of this life
  std::map<LeaseId, Time> unheld_;    // connection leases without a connection, since
  std::map<LeaseId, Time> back_by_;   // earliest end for want of a connection
  std::map<LeaseId, Time> forgiven_;  // earliest expiry, whatever is stored
  std::set<LeaseId> requested_, revoked_, wanted_back_;
  std::map<LeaseId, Time> pause_began_;  // on CLOCK_MONOTONIC

  std::map<LeaseId, Standing> standing_;  // plans of which nothing moves, by preemptor
  std::map<LeaseId, Time> fits_since_;    // waiting leases that fit
  std::optional<Time> looked_;            // start of a reading that was told in this step
  Time last_now_;
  std::optional<std::uint64_t> checked_;  // number of the core's steps at the last check
  bool woke_ = false;                     // the newest decision is the first after a standstill
  bool wakes_ = false;                    // after a clock gap, nothing was decided yet
  Duration napped_{};                     // machine sleep that the engine has not noticed
  bool trace_ = false;
};

}  // namespace sublet::sim
