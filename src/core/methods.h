// SPDX-License-Identifier: Apache-2.0
// By what a lease could be made to yield. Private to this folder.
#pragma once

#include "core/lease.h"
#include "core/state.h"

#include <vector>

namespace sublet::core {

// By what it could be paused, the best first: what it supports, its owner allows, and went well before.
std::vector<PauseMethod> pause_methods_of(const State& state, const Lease& lease);

// The first of them, or, as PauseUnsafe, why there is none. Says nothing of whether it is the moment: its state, the
// room in host memory.
Result<PauseMethod> pause_method_of(const State& state, const Lease& lease);

// Only the driver could park it, and nothing of its program has been seen on a card, so that there is nothing to park:
// it is being started, or does something else. Whoever asked it to yield would wait for nothing.
bool nothing_to_park(const State& state, const Lease& lease);

// What it keeps, and reserves, on each of its devices while it is paused so.
Bytes residue_of(const Lease& lease, PauseMethod method);

// A spot lease that cannot be paused may be ended instead, with notice: one whose program Sublet can end, or that has
// none whose bytes would stay.
bool may_be_ended(const Lease& lease);

// Room is made of it by ending its program: one that may be ended, and that can never be parked, because it has no
// method, or was given more than host memory could take if nothing else were in there. (What it holds beyond that it
// may give back: not for that is anybody ended.)
bool is_ended_for_room(const State& state, const Rules& rules, const Lease& lease);

// What its processes hold, or may take, on all its devices together.
Bytes held_by(const State& state, const Lease& lease);

// What the ledger's own limits leave to the user, or to all, whatever the machine has of host memory.
Bytes ledger_left(const State& state, const Rules& rules, std::optional<std::uint32_t> uid);

// The most that the ledger takes of it now, where that is less than what it holds, whatever the machine has of host
// memory. Unset: it may take it, or has it already.
std::optional<Bytes> beyond_ledger(const State& state, const Rules& rules, const Lease& lease);

// Whether there is any ground at all on which somebody else could be given its room; does not change while a lease
// keeps its owner and its program's word that it yields by itself.
bool might_yield(const Lease& lease);

inline unsigned bit_of(PauseMethod method) { return 1U << static_cast<unsigned>(method); }

}  // namespace sublet::core
