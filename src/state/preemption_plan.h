// SPDX-License-Identifier: Apache-2.0
// Preemption plans, victims and time slices.
#pragma once

#include "lease/cost.h"
#include "lease/lease.h"
#include "lease/plan_record.h"
#include "lease/reason.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sublet::core {

// A victim of a preemption plan or preview.
struct Victim {
  LeaseId lease;
  bool ends = false;                           // a spot lease that cannot be paused: it is ended, with notice
  std::optional<PauseCauseKind> reclaim = {};  // set: its capability takes its memory; see GiveBack
  PauseMethod method = PauseMethod::driver;
  Bytes gain;                // bytes freed on the devices of the plan
  Bytes bytes;               // bytes moved, on all of its devices
  Bytes enters, stays;       // ledger bytes: at the pause order, and once it is parked, as far as known
  Prediction pause, resume;  // expected times; zero if it ends
  Duration cost{};           // pause and resume, or the loss by its end, plus the risk of a failed attempt
  // The cheapest first; victims that end come after all others.
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
  guaranteed,            // it is within the quota of its tenant, and the preemptor is not
  ends_for_higher_tier,  // it cannot be paused, and is ended for a higher tier only
  keeps_request,         // its memory was requested, and the preemptor waited then
  keeps_request_for,     // its memory was requested, and it keeps that for a while
  cooldown,              // its last pause came to nothing a moment ago
  just_resumed,
};

struct Ineligible {
  LeaseId lease;
  IneligibleCode code{};
  Time until = Time::never();  // when it may be a victim by time alone
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

// A preemption in progress. Free memory on its devices is reserved for its beneficiaries until they have it or the plan
// is cancelled. A plan that has asked a victim is stored; before that it is only proposed, and made anew in each step.
struct PreemptionPlan {
  enum class Phase {
    proposed,  // no victim was asked yet
    draining,  // victims are still to be asked
    ready,     // all needed pauses are in progress or done
  };

  std::uint64_t id = 0;  // ascending in the life of a store; 0: proposed
  Cause cause = Cause::tier;
  Tier tier = Tier::standard;          // of the preemptor, or of a victim of its request; higher tiers are not kept out
  std::vector<LeaseId> beneficiaries;  // waiters that enter; never empty, the first is the preemptor
  std::vector<std::string> devices;    // uuids, none in another plan
  std::vector<Victim> victims;         // victims still to pause, the cheapest first
  std::vector<LeaseId> asked = {};     // victims that were asked, in this order
  Time moved_at = {};                  // when it last made progress

  LeaseId preemptor() const { return beneficiaries.front(); }
  bool has(LeaseId beneficiary) const { return std::ranges::find(beneficiaries, beneficiary) != beneficiaries.end(); }
  Phase phase() const { return id == 0 ? Phase::proposed : victims.empty() ? Phase::ready : Phase::draining; }
};

// A plan is cancelled if the victims that are left cannot be paused for so long, although they may be later.
inline constexpr Duration longest_stall = std::chrono::seconds(30);

// Why a plan ends before its beneficiaries have their memory.
enum class PlanEnd {
  unwanted,        // its request or its time slice is withdrawn, or its beneficiary wants other devices
  out_of_service,  // a device is gone or grants nothing any more
  no_victims,      // the leases that are left cannot be paused, or do not free enough
  stalled,         // its victims may be paused later only, and for too long
  outranked,       // a plan for a more urgent lease needs a device
};

// The data that decide whether a lease is a good victim.
struct Standing {
  Time restored;                    // when it came back from a pause
  Time came_back;                   // since when it has its memory: by grant, by growth on request, or by resume
  Time used_until;                  // when something of it was last seen on a device
  Time tried_at;                    // when its last pause failed
  Time ineligible_until;            // no pause is tried before this
  int failures = 0;                 // failed pauses in a row
  std::optional<PauseMethod> next;  // the method to try next, after another method just failed
  Bytes parked;                     // bytes that the driver parked in its last pause
  Time silent_since;                // since when no process has registered how it yields
};

// The next time slice on a device, or on all devices of a lease that wants several.
struct NextSlice {
  std::vector<std::string> devices;  // uuids
  Tier tier = Tier::standard;
  Time at;                              // the end of the present slice: the leases leave then at the latest
  bool fixed = false;                   // `at` does not change any more
  std::vector<LeaseId> enters, leaves;  // the first that enters is the preemptor
};

// Leases of one tier that share devices in strict turns, since no two of them fit together; as of the last look.
struct Rotation {
  std::vector<std::string> devices;  // uuids, with one clock
  Tier tier = Tier::standard;
  Duration slice{};             // length of a time slice; follows from the price of a switch
  Duration longest_slice{};     // the same by careful prediction
  Duration switching{};         // the longest switch between two of the leases, by careful prediction
  std::vector<LeaseId> leases;  // that share, those that wait included
};

// The victims that would be paused now: for a preview, and for the decision itself.
struct VictimPlan {
  bool found = false;
  NoVictims no_victims;              // not found: why
  std::string why_not;               // not found: why, one sentence; set by put_in_words()
  std::vector<std::string> devices;  // found: uuids of its devices; not found: where the least is lacking
  std::vector<Victim> victims;       // the cheapest first; empty: no further victim is needed
  bool reclaims = false;             // found: with reclaimable leases
  bool in_progress = false;          // other leases are being paused there already
  Duration pause{};                  // time until the memory is free, the victims one after the other
  Duration cost{};
  // Found, but only once a victim is eligible: the time until then (unset: unknown), and why, one sentence.
  std::optional<Duration> wait = Duration{};
  std::string wait_for;
  // For previews: how long the victims stay paused (unset: unknown), and the source of that or why it is unknown, one
  // clause.
  std::optional<Duration> paused_for = {};
  std::string paused_for_basis;
  Time again = Time::never();          // not found: when time alone may change that
  bool beyond_ledger = false;          // not found: the eligible victims need more host memory than there is
  Bytes short_bytes;                   // not found: bytes lacking there with all eligible victims paused
  std::string hint;                    // not found, in a preview: what else there is
  std::vector<Ineligible> ineligible;  // ineligible leases on these devices
};

}  // namespace sublet::core
