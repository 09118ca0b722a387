// SPDX-License-Identifier: Apache-2.0
// By what a lease could be made to yield. Private to this folder.
#pragma once

#include "core/lease.h"
#include "core/state.h"

#include <boost/container/static_vector.hpp>

namespace sublet::core {

using PauseMethods = boost::container::static_vector<PauseMethod, 2>;

// By what it could be paused, the best first: what it supports, its owner allows, and went well before.
PauseMethods pause_methods_of(const State& state, const Lease& lease);

// The first of them, or, as PauseUnsafe, why there is none. Says nothing of whether it is the moment: its state, the
// room in host memory.
Result<PauseMethod> pause_method_of(const State& state, const Lease& lease);

// Nothing but its owner's word is lacking for it to be parked: Sublet did not start its program, or before driver 580.
bool lacks_a_grant(const State& state, const Lease& lease);

// Those of them that nothing is known to be in the way of.
PauseMethods open_methods_of(const State& state, const Lease& lease, Time now);

// The bytes that the lease keeps, and reserves, on each of its devices while it is paused by this method.
Bytes residue_of(const State& state, const Lease& lease, PauseMethod method);

// The part of the headroom that the residue of one more paused lease may take without loss. The headroom is for the
// residues of parked leases, and its rest is shared among all leases that are not parked there.
Bytes headroom_share(const State& state, const Device& device);

// How room is made of what a lease holds, as things are with it: whoever asks for it, and whatever the machine has of
// host memory at the moment.
struct WayToYield {
  enum class Kind {
    park,
    end,   // spot only: its program is ended with notice, for it can never be parked, or has nothing that could be
    none,  // not now, or never: `obstacle`
  };
  enum class Obstacle {
    none,
    no_method,        // pause_method_of says why
    barred,           // what is in the way of all its methods lasts, until somebody changes that
    unregistered,     // nothing has said yet how it yields; from `until` on it may be ended
    nothing_on_card,  // only the driver could park it, and it has seen nothing of its program: who asked it would wait
                      // for nothing. From `until` on it may be ended
    ledger,           // by its own limits the ledger takes no more than `takes` now, which is less than it holds
  };
  Kind kind = Kind::none;
  PauseMethod method{};  // by which it is, or would be, parked
  Obstacle obstacle{};
  Bytes takes{};
  Time until = Time::never();

  bool parks() const { return kind == Kind::park; }
  bool ends() const { return kind == Kind::end; }
  // Its moment over, it may be ended.
  bool ends_later() const {
    return (obstacle == Obstacle::unregistered || obstacle == Obstacle::nothing_on_card) && until != Time::never();
  }
};
// `preemptor`: the user for whose lease it would yield. Another user's wait makes `ledger.user_share` bind.
WayToYield way_to_yield(const State& state, const Rules& rules, const Lease& lease, std::uint32_t preemptor, Time now);

// True for a spot lease whose program has not answered resume orders for the longest time that is allowed. The lease is
// ended during its resume, for a preemptor of a higher tier.
bool does_not_go_on(const State& state, const Rules& rules, const Lease& lease, Time now);

// The obstacle in words; only for a way of the kind none.
std::string obstacle_text(const State& state, const Lease& lease, const WayToYield& way, Time now);

// No method is there, and one may still come: nothing has registered yet, or no program has come that the driver could
// park.
bool may_register(const Lease& lease);

// The most that could be parked of it for this preemptor if nothing else were in host memory: for another user's lease
// no more than one user's share, for as long as that one waits its user is not alone.
struct MostParkable {
  Bytes bytes;
  std::string_view bound;  // by what, in words
};
MostParkable most_parkable(const Rules& rules, const Lease& lease, std::uint32_t preemptor);

// The bytes that its processes hold, or may take, on all its devices together.
Bytes held_by(const State& state, const Lease& lease);

// The bytes that the ledger's own limits leave to the user, or to all, whatever host memory the machine has. Leases
// that are being parked count with no more than they use, because no other lease is asked before that is known.
Bytes ledger_left(const State& state, const Rules& rules, std::optional<std::uint32_t> uid);

// The same of a lease of that user which yields for one of the user `preemptor`, whose wait makes `ledger.user_share`
// bind.
Bytes ledger_left_for(const State& state, const Rules& rules, std::uint32_t uid, std::uint32_t preemptor);

// The bytes that the ledger is expected to hold for a lease once it is parked, out of the bytes that it enters.
Bytes stays_parked(const State& state, const Lease& lease, PauseMethod method, Bytes enters);

// Whether there is any ground at all on which somebody else could be given its room; does not change while a lease
// keeps its owner and its program's word that it yields by itself.
bool might_yield(const Lease& lease);

inline unsigned bit_of(PauseMethod method) { return 1U << static_cast<unsigned>(method); }

}  // namespace sublet::core
