// SPDX-License-Identifier: Apache-2.0
// Pause methods: which could pause a lease, what they leave, and why not the others. For this folder, src/explain and
// `sublet why`.
#pragma once

#include "lease/lease.h"
#include "state/state.h"

#include <boost/container/static_vector.hpp>

namespace sublet::core {

using PauseMethods = boost::container::static_vector<PauseMethod, 2>;

// The methods that could pause it, the best first: those that it supports, its owner allows, and that went well before.
PauseMethods pause_methods_of(const State& state, const Lease& lease);

// The first of these methods, or as PauseUnsafe why there is none. Its state and host memory are not examined.
Result<PauseMethod> pause_method_of(const State& state, const Lease& lease);

// A method as `sublet why` tells it.
struct MethodChoice {
  PauseMethod method;
  bool chosen;  // it pauses the lease, or would be tried first
  std::string why_not = {};
};
std::vector<MethodChoice> method_choices(const State& state, const Lease& lease, Time now);

// True if only its owner's consent is lacking for a pause by the driver. Sublet did not start its program, or the
// driver is older than 580.
bool lacks_a_grant(const State& state, const Lease& lease);

// The methods without a known lasting obstacle.
PauseMethods open_methods_of(const State& state, const Lease& lease, Time now);

// The bytes that the lease keeps, and reserves, on each of its devices while it is paused by this method.
Bytes residue_of(const State& state, const Lease& lease, PauseMethod method);

// The part of the headroom that the residue of one more paused lease may take without loss. The headroom is for the
// residues of parked leases, and its rest is shared among all leases that are not parked there.
Bytes headroom_share(const State& state, const Device& device);

// How the bytes of a lease can be freed as things are with it, for any preemptor and any host memory.
struct WayToYield {
  enum class Kind {
    park,
    end,   // spot only: its program is ended with notice, because it can never be parked, or has nothing to park
    none,  // not now, or never: see `obstacle`
  };
  Kind kind = Kind::none;
  PauseMethod method{};  // the method by which it is, or would be, parked
  // None: no_method, unregistered and nothing_on_card (from `until` on it may be ended), ledger_full (only `takes` is
  // left, less than it holds), or a lasting obstacle to all its methods.
  ObstacleCode obstacle{};
  Bytes takes{};
  Time until = Time::never();

  bool parks() const { return kind == Kind::park; }
  bool ends() const { return kind == Kind::end; }
  // True if it may be ended once `until` is over.
  bool ends_later() const {
    return (obstacle == ObstacleCode::unregistered || obstacle == ObstacleCode::nothing_on_card) &&
           until != Time::never();
  }
};
// `preemptor`: the user of the lease that needs memory. Another user's wait makes `ledger.user_share` bind.
WayToYield way_to_yield(const State& state, const Rules& rules, const Lease& lease, std::uint32_t preemptor, Time now);

// True for a spot lease whose program has not answered resume orders for the longest time that is allowed. The lease is
// ended during its resume, for a preemptor of a higher tier.
bool does_not_go_on(const State& state, const Rules& rules, const Lease& lease, Time now);

// The obstacle in words; only for a way of the kind none.
std::string obstacle_text(const State& state, const Lease& lease, const WayToYield& way, Time now);

// True if it has no method and may still get one: no process has registered, or no program that the driver could park
// has come.
bool may_register(const Lease& lease);

// The most of it that could be parked for this preemptor with empty host memory. For another user's lease that is one
// user's share at most, because the lease's user is not alone while the preemptor waits.
struct MostParkable {
  Bytes bytes;
  std::string_view bound;  // the limit that binds, in words
};
MostParkable most_parkable(const Rules& rules, const Lease& lease, std::uint32_t preemptor);

// The bytes that its processes hold, or may take, on all its devices together.
Bytes held_by(const State& state, const Lease& lease);

// The part of these bytes that enters the ledger if the lease is parked. Memory of a unified device is the machine's
// already, so that a program there can only free it.
Bytes enters_host(const State& state, const Lease& lease);

// The first unified device of the lease; null: none.
const Device* unified_device(const State& state, const Lease& lease);

// The bytes that the ledger's own limits leave to the user, or to all, whatever host memory the machine has. Leases
// that are being parked count with no more than they use, because no other lease is asked before that is known.
Bytes ledger_left(const State& state, const Rules& rules, std::optional<std::uint32_t> uid);

// The bytes left for a victim of user `uid` and a preemptor of user `preemptor`, whose wait makes `ledger.user_share`
// bind.
Bytes ledger_left_for(const State& state, const Rules& rules, std::uint32_t uid, std::uint32_t preemptor);

// The bytes that the ledger is expected to hold for a lease once it is parked, out of the bytes that it enters.
Bytes stays_parked(const State& state, const Lease& lease, PauseMethod method, Bytes enters);

// True if any cause could make the lease a victim. Constant while the lease keeps its owner, its program's registration
// and its memory.
bool might_yield(const Lease& lease);

inline unsigned bit_of(PauseMethod method) { return 1U << static_cast<unsigned>(method); }

}  // namespace sublet::core
