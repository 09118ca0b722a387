// SPDX-License-Identifier: Apache-2.0
// Room that is being made for somebody by asking others to yield, and turns of those who do not fit together.
#pragma once

#include "core/cost.h"
#include "core/lease.h"
#include "core/reason.h"

#include <optional>
#include <string>
#include <vector>

namespace sublet::core {

// On what ground others have to make room: they are of a lower tier; it is the preemptor's turn among equals; or
// somebody who may has ordered it.
enum class Cause { tier, slice, request };

// Somebody who yields, or would.
struct Victim {
  LeaseId lease;
  bool ends = false;  // a spot lease that cannot be paused: it is ended, with notice
  PauseMethod method = PauseMethod::driver;
  Bytes gain;                // on the devices where room is made
  Bytes bytes;               // that are moved, on all of its devices
  Bytes enters, stays;       // of the ledger: from when it is asked, and once it is parked, as far as that is known
  Prediction pause, resume;  // what it takes; nothing where it ends
  Duration cost{};           // pause and resume, or what is lost with its end, and what its unreliability adds
  // The cheapest first; nobody is ended before all others have yielded.
  bool operator<(const Victim& other) const {
    if (ends != other.ends) return other.ends;
    return cost != other.cost ? cost < other.cost : lease < other.lease;
  }
};

// Why a lease may not be a victim now.
enum class IneligibleCode {
  resuming,              // it is on its way back
  inactive,              // it is in another state than active
  stuck,                 // the driver does not return
  ending,                // its program is asked to end
  obstacle,              // it cannot be paused: way_to_yield() says why
  not_requesters,        // it is not the program of the user who requested memory
  tier,                  // its tier does not yield to the tier of the preemptor
  ends_for_higher_tier,  // it cannot be paused, and is ended for a higher tier only
  keeps_request,         // its memory was requested, and the preemptor waited then
  keeps_request_for,     // its memory was requested, and it keeps that for a while
  backoff,               // its last pause came to nothing a moment ago
  just_resumed,
};

struct Ineligible {
  LeaseId lease;
  IneligibleCode code{};
  Time until = Time::never();  // then it may be a victim, by time alone
  std::string why = {};        // one sentence; set by put_in_words()
};

// Why no victims were found, with the numbers of the sentence.
struct NoVictims {
  enum class Code {
    none,
    nobody_eligible,  // nobody on `device`
    too_little,       // all who are eligible on `device` hold only `gain` of `lacks`
    free_sooner,      // the memory on `device` is free by itself in `in`, and pauses take `takes`
    beyond_ledger,    // host memory does not take `victims` together
    unknown_devices,  // only `known` of its devices are known
  } code = Code::none;
  std::string device;  // uuid
  Bytes gain, lacks;
  Duration in{}, takes{};
  std::vector<Victim> victims = {};
  std::size_t known = 0;
};

// One waiter's room, for as long as it is made: what is free on these devices is kept for it meanwhile.
struct PreemptionPlan {
  LeaseId preemptor;
  Tier tier =
      Tier::standard;  // of the preemptor, or of who yields for it on somebody's word: who is above is not kept out
  Cause cause = Cause::tier;
  bool by_slice = false;  // with that it began; it is gone on with as that, whoever else yields for it in the end
  bool started = false;   // somebody was asked to leave for it, in this turn
  std::vector<std::string> devices;    // uuids
  std::vector<Victim> victims;         // still to be asked, the cheapest first; none: all that is needed is under way
  std::vector<LeaseId> beneficiaries;  // who else comes in by the same turn: what they need is kept for them as well
};

// Why a lease is not asked to yield for a while.
struct LeftAlone {
  enum class Ground {
    failed,   // its pause failed by all methods that there are: it is trusted less
    undone,   // its pause was undone, and that is not its own fault: it could not be measured, a debugger or a restart
              // came between
    refused,  // it was not asked at all: host memory does not take what it holds, say
  } ground = Ground::failed;
  ReasonKind kind = ReasonKind::note;  // what was in the way: a kind of undone pause, or a note
  ReasonArgs args = {};
  std::string hint = {};  // what its owner can do about it; "": nothing is known
};

// A lasting obstacle to the pauses of a lease, as found a moment ago.
struct Barred {
  Hindrance by{};
  std::string why;  // one sentence
  Time until;       // then it is looked at again
};

// How a lease stands as one that may be asked to yield.
struct Standing {
  Time restored;          // back from a pause
  Time came_back;         // since then it has its room: granted, grown on somebody's word, or back from a pause
  Time used_until;        // nothing of it has been seen on a device since, if nothing is
  Time tried_at;          // no pause came of it then …
  Time ineligible_until;  // … and none is tried before this
  int failures = 0;       // of its pauses, in a row
  std::optional<PauseMethod> next;  // the method that it would be asked by now: another one has just failed
  Bytes parked;                     // what the driver had parked of it the last time
  Time silent_since;                // nothing has said how it yields since, if nothing has
};

// The next turn on a device, or on several at once for a lease that wants so many: who leaves, and who comes in for it.
struct NextSlice {
  std::vector<std::string> devices;  // uuids
  Time at;                           // the quantum of those who leave ends
  std::vector<LeaseId> enters, leaves;
  Time said = Time::never();  // what people are told: never later than they were told before of this very turn
};

// An announced time slice, for the lease that it brings in.
struct AnnouncedSlice {
  std::vector<LeaseId> leaves;  // by id
  Time said;                    // to begin then, …
  Time first;                   // … for the first time
};

// The victims that would be paused now: for a preview, and for the decision itself.
struct VictimPlan {
  bool found = false;
  NoVictims no_victims;              // not found: why …
  std::string why_not;               // … and as one sentence; set by put_in_words()
  std::vector<std::string> devices;  // found: where; not found: where least is lacking, if anywhere
  std::vector<Victim> victims;       // the cheapest first; none: nobody has to yield any more …
  bool in_progress = false;          // … or others are yielding there already
  Duration pause{};                  // until the room is there, the victims one after the other
  Duration cost{};
  // Found, but only once one of them may be asked: how long that takes (unset: not known), and why; one sentence.
  std::optional<Duration> wait = Duration{};
  std::string wait_for;
  // Told to people: how long those stay away who are parked for it, from when they have yielded (unset: not known), and
  // from what that is known, or why not; one clause.
  std::optional<Duration> paused_for = {};
  std::string paused_for_basis;
  Time again = Time::never();          // not found: by time alone it may be from then on
  bool beyond_ledger = false;          // not found: those who could yield are more together than host memory takes
  Bytes short_bytes;                   // not found: lacking there although all yield who may
  std::string hint;                    // not found, and asked by people: what else there is
  std::vector<Ineligible> ineligible;  // those on these devices who are not asked
};

}  // namespace sublet::core
