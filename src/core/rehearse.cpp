// SPDX-License-Identifier: Apache-2.0
#include "core/rehearse.h"

#include "core/expect.h"
#include "core/ledger_set.h"
#include "core/prospects.h"
#include "core/step.h"
#include "core/turns.h"
#include "core/victims.h"
#include "core/words.h"

#include <algorithm>

namespace sublet::core {
namespace {

// Whose turn has come has others leave who are of its own standing: that is no plan of room_plan().
RoomPlan plan_of(const Making& making) {
  RoomPlan room;
  room.found = true;
  room.devices = making.devices;
  room.victims = making.victims;
  room.under_way = making.victims.empty();
  for (const Victim& victim : making.victims) room.pause += victim.pause.likely, room.cost += victim.cost;
  return room;
}

// The same once their time is over.
RoomPlan plan_of(const State& state, const Rules& rules, const Lease& waiter, const NextTurn& turn, Time now) {
  RoomPlan room;
  room.found = true;
  room.devices = turn.devices;
  room.wait = std::max(turn.said - now, Duration{});
  room.victims = leaving(state, rules, waiter, turn, now);
  for (const Victim& victim : room.victims) {
    room.pause += victim.pause.likely, room.cost += victim.cost;
    room.wait_for += (room.wait_for.empty() ? "" : "; ") + name_of(*state.find(victim.lease)) +
                     ": it has its turn for " + format_duration(*room.wait) + " more";
  }
  return room;
}

bool parks_somebody(const RoomPlan& room) {
  return room.found && std::ranges::any_of(room.victims, [](const Victim& victim) { return !victim.ends; });
}

// Until it gives its room back they have no claim on it.
RoomPlan with_time_away(RoomPlan room, const State& state, const Rules& rules, const Lease& asked, Time now) {
  if (!parks_somebody(room)) return room;
  const Time start = asked.runs_since(now);
  const Expected end = expected_end(state, rules, asked, start, now);
  const bool by_limit = end.basis == Basis::limit || end.basis == Basis::stopping;
  if (asked.owner.kind == OwnerKind::token && asked.nameless && asked.ttl) {
    room.away = *asked.ttl;
    room.away_basis = "for as long as the room is held, unless that is renewed";
  } else if (end.known()) {
    room.away = end.at - now;
    room.away_basis =
        "until it " + std::string(by_limit ? "" : "ends: ") + expected_text(state, asked, end.basis, start, now);
  } else {
    room.away_basis = "it " + expected_text(state, asked, end.basis, start, now);
  }
  return room;
}

RoomPlan with_time_of_turn(RoomPlan room, const State& state, const Rules& rules, const Lease& asked) {
  if (!parks_somebody(room)) return room;
  room.away = residency(state, rules, asked, room.devices);
  room.away_basis = "for a turn at least; then it is theirs again";
  return room;
}

Lease outcome_of(const State& after, const Plan& plan) {
  const LeaseId id = *plan.outcome;
  if (const Lease* lease = after.find(id)) return *lease;
  return *std::find_if(plan.changed.begin(), plan.changed.end(), [id](const Lease& lease) { return lease.id == id; });
}

}  // namespace

RoomPlan room_plan(const State& state, const Rules& rules, const Lease& asked, const std::optional<Ordered>& ordered,
                   Time now) {
  return with_time_away(plan_now_or_later(state, rules, Asking{asked, ordered}, now), state, rules, asked, now);
}

void weigh_host(RoomPlan& room, const State& state, const Rules& rules, std::uint32_t asker, HostMemory host) {
  host.headroom.reset();  // each of them may be in a control group of its own
  if (!room.found || beyond_ledger(state, rules, asker, room.victims, host).empty()) return;
  room.why_not = too_many_text(state, rules, asker, room.victims, host);
  room.found = false;
  room.beyond_ledger = true;
  room.victims.clear();
}

std::string_view to_string(Would would) {
  switch (would) {
    case Would::start: return "start";
    case Would::make_room: return "make_room";
    case Would::wait: break;
  }
  return "wait";
}

Result<Rehearsal> rehearse(const State& state, const Rules& rules, const Submit& fact, Time now) {
  State after = state;
  const Plan plan = step(after, rules, fact, now);
  if (!plan.outcome) return plan.outcome.error();
  Rehearsal found;
  found.lease = outcome_of(after, plan);
  Lease asked = fact.lease;
  if (const Device* device = state.find_device(asked.wanted_device)) asked.wanted_device = device->reading.uuid;
  found.room = room_plan(state, rules, asked, fact.ordered, now);
  if (found.lease.state != LeaseState::queued) {
    // A spot lease that could be ended at once is gone by now, in the copy.
    found.would = found.room.victims.empty() ? Would::start : Would::make_room;
    return found;
  }
  found.queue = queue_info(after, rules, found.lease, now);
  // In the copy it has ended; here it runs, and has its time to end.
  for (const Victim& victim : found.room.victims) {
    if (const Lease* its = after.find(victim.lease); !victim.ends || (its != nullptr && !its->ended())) continue;
    found.would = Would::make_room;
    found.queue.eta.reset();
    found.queue.basis =
        "room is made for it: " + name_of(*state.find(victim.lease)) + " is ended, and has its time to end";
    return found;
  }
  if (const Making* making = after.making_for(found.lease.id)) {
    found.would = Would::make_room;
    if (making->ground == Ground::turn) found.room = with_time_of_turn(plan_of(*making), after, rules, found.lease);
  }
  for (const auto& [device, turn] : after.turns())
    if (found.would == Would::wait && !found.room.found && holds(turn.enters, found.lease.id))
      found.room = with_time_of_turn(plan_of(after, rules, found.lease, turn, now), after, rules, found.lease);
  return found;
}

Result<Rehearsal> rehearse(const State& state, const Rules& rules, const Submit& fact, const HostMemory& host,
                           Time now) {
  auto found = rehearse(state, rules, fact, now);
  if (!found || found->would != Would::make_room) return found;
  weigh_host(found->room, state, rules, fact.lease.uid, host);
  if (found->room.found) return found;
  Rules nobody_yields = rules;
  nobody_yields.automatic = false;
  auto waits = rehearse(state, nobody_yields, fact, now);
  if (waits && waits->would == Would::wait) waits->room = std::move(found->room);
  return waits;
}

}  // namespace sublet::core
