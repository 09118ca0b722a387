// SPDX-License-Identifier: Apache-2.0
// Places and expected starts of waiting leases: the times are those of a projection, and here they are put in words.
#include "core/victims.h"
#include "explain/advice.h"
#include "explain/explain.h"
#include "explain/projection.h"
#include "state/format.h"
#include "state/ledger_set.h"
#include "state/nominations.h"
#include "state/reclaim.h"

#include <algorithm>
#include <utility>

namespace sublet::explain {

using namespace core;

namespace {

// An estimate that depends on more waiters than this would be a guess.
constexpr std::size_t waiters_followed = 200;
constexpr std::size_t holders_named = 8;

std::string beyond_text(const State& state, const Rules& rules, const Lease& preemptor,
                        const std::vector<Victim>& victims) {
  const std::string why_not = beyond_ledger(state, rules, preemptor.uid, victims);
  return why_not.empty() ? why_not : ", but " + why_not;
}

// Its own plan, which gives no time: a pause takes too long, a program has its time to end, or host memory is lacking.
std::string plan_text(const State& state, const Rules& rules, const PreemptionPlan& plan, Time now) {
  std::vector<LeaseId> leases;
  std::string why = plan.victims.empty() ? "" : takes_text(state, plan.victims);
  for (const std::string& device : plan.devices)
    for (const LeaseId id : state.devices.by_uuid.at(device).leases) {
      const Lease& lease = *find(state, id);
      if (!is_leaving(state, lease) || holds(leases, id)) continue;
      if (is_given_back(state, id)) {
        why = name_of(lease) + " gives its memory back";
        continue;
      }
      leases.push_back(id);
      if (lease.parking && !time_left(state, id, now))
        why = name_of(lease) + " is being paused since " + format_duration(now - lease.parking->since) +
              ", which takes longer than it should";
    }
  for (const Victim& victim : plan.victims) leases.push_back(victim.lease);
  if (leases.empty()) return why.empty() ? "" : "memory is being freed for it: " + why;
  return "memory is being freed for it by pausing " + names_of(state, leases) + (why.empty() ? "" : ": " + why) +
         beyond_text(state, rules, *find(state, plan.preemptor()), plan.victims);
}

// The pauses for the waiter that come in a while, or the reason why none is promised.
std::string later_text(const State& state, const Rules& rules, const Lease& lease, Time now) {
  const auto request = request_of(state, lease.id);
  if (!request && !(may_ask(state, rules, lease) && may_have_victims(state, lease.tier))) return {};
  const PreemptionQuery query{lease, request, /*lists_all=*/false};
  const VictimPlan at_once = plan_victims(state, rules, query, now);
  if (at_once.found) {
    for (const std::string& device : at_once.devices)
      if (const PreemptionPlan* other = plan_on(state, device))
        return "memory on " + names_of_devices(state, {device}) + " is being freed for " +
               name_of(*find(state, other->preemptor())) + " first";
    return {};
  }
  const VictimPlan later = plan_later(state, rules, query, now);
  if (!later.found && at_once.beyond_ledger) {
    const PreemptionQuery all{lease, request};
    return no_victims_text(state, rules, all, plan_victims(state, rules, all, now).no_victims);
  }
  if (!later.found || later.wait_for.empty()) return {};
  return later.wait_for + "; then " + takes_text(state, later.victims) +
         beyond_text(state, rules, lease, later.victims);
}

std::string ends_text(const State& state, const Projection::Start& start, Time now) {
  std::string text;
  for (const Projection::Freed& end : start.last) {
    const Lease& lease = *find(state, end.lease);
    text += (text.empty() ? "" : "; ") + name_of(lease) + " " + expected_text(state, lease, end.basis, end.start, now);
    if (end.basis == Basis::history_overdue) text += "; its longest run took " + format_duration(end.at - end.start);
  }
  if (start.before > 0) text += "; after the ends of " + std::to_string(start.before) + " more before them";
  return text;
}

// The first other lease there whose end is unknown, and why; "": there is none.
std::string without_end(const State& state, const Rules& rules, const Lease& waiter, const Device& device, Time now) {
  for (const ChargedLease& entry : device.by_charge) {
    const Lease& holder = *find(state, entry.lease);
    const Time start = holder.runs_since(now);
    const Expected end = expected_end(state, rules, holder, start, now);
    if (entry.lease != waiter.id && !end.known())
      return name_of(holder) + " " + expected_text(state, holder, end.basis, start, now);
  }
  return {};
}

}  // namespace

std::string Estimates::basis_text(const Lease& lease, const Projection::Start& start) const {
  if (start.last.empty()) return "it fits now";
  const Projection::Freed& last = start.last.back();
  const bool stops = last.basis == Basis::stopping && !find(state_, last.lease)->stop_requested;
  if (!last.cause && last.basis != Basis::nothing && !stops) return ends_text(state_, start, now_);
  std::vector<LeaseId> victims;
  Duration takes{};
  for (const Projection::Freed& freed : start.last) {
    victims.push_back(freed.lease);
    if (freed.cause) takes += freed.at - freed.asked;
  }
  if (last.gives_back)
    return names_of(state_, victims) + (victims.size() == 1 ? " gives its" : " give their") + " memory back for it";
  const std::string names = names_of(state_, victims) + (victims.size() == 1 ? " is " : " are ");
  if (last.cause && last.cause->kind == PauseCauseKind::slice)
    return "its time slice begins then: " + names + "paused, and " + takes_text(victims.size(), takes);
  if (last.cause && (start.last.front().asked <= now_ || plan_for(state_, lease.id) != nullptr))
    return "memory is being freed for it by pausing " + names_of(state_, victims) + ": " +
           takes_text(victims.size(), takes);
  if (std::string text = later_text(state_, rules_, lease, now_); !text.empty()) return text;
  return names + (last.cause ? "paused for it then, and " + takes_text(victims.size(), takes) : "ended for it");
}

std::string Estimates::why_unknown(const Lease& waiter) const {
  if (const PreemptionPlan* plan = plan_for(state_, waiter.id))
    if (std::string text = plan_text(state_, rules_, *plan, now_); !text.empty()) return text;
  if (std::string text = later_text(state_, rules_, waiter, now_); !text.empty()) return text;
  const Nearest nearest = nearest_device(state_, rules_, waiter, now_);
  if (nearest.device == nullptr) {
    if (std::string closed = out_of_service_text(state_, rules_, waiter); !closed.empty()) return closed;
    for (const auto& [uuid, device] : state_.devices.by_uuid)
      if (may_use(waiter, uuid)) return unknown_text(state_, device, rules_, now_);
    return "no device was read yet";
  }
  if (projection_->ends_first(waiter.id)) return "it is expected to end before it can grow";
  if (projection_->is_cut()) return "more happens before its start than an estimate looks at";
  if (std::string open = without_end(state_, rules_, waiter, *nearest.device, now_); !open.empty()) return open;
  const Bytes whole = waiter.waits_in_place() ? waiter.wanted_vram() : waiter.least();
  if (capacity_of(*nearest.device, rules_) - nearest.device->other < whole)
    return "programs without a lease hold " + format_size(nearest.device->other) + " on " + name_of(*nearest.device);
  if (waiter.device_count > 1)
    for (const auto& [uuid, device] : state_.devices.by_uuid)
      if (std::string open = may_use(waiter, uuid) ? without_end(state_, rules_, waiter, device, now_) : "";
          !open.empty())
        return open;
  return state_.queue.place(waiter.id) > 1 ? "the leases before it in the queue have no known end"
                                           : "the known ends of other leases do not free enough";
}

Estimates::Estimates(const State& state, const Rules& rules, Time now, Projections* projections)
    : state_(state), rules_(rules), now_(now), projections_(projections == nullptr ? own_ : *projections) {}
Estimates::~Estimates() = default;

void Estimates::estimate_start(const Lease& lease, QueueInfo& info) {
  if (info.place > waiters_followed) {
    info.basis = "more than " + std::to_string(waiters_followed) + " wait before it";
    return;
  }
  if (projection_ == nullptr) projection_ = projections_.of(state_, rules_, now_);
  if (const Projection::Start* start = projection_->start_of(lease.id)) {
    info.eta = std::max(start->at - now_, Duration{});
    info.basis = basis_text(lease, *start);
  } else {
    info.basis = why_unknown(lease);
  }
}

QueueInfo Estimates::of(const Lease& lease) {
  QueueInfo info;
  info.place = state_.queue.place(lease.id);
  if (info.place == 0) return info;
  if (std::string hopeless = hopeless_text(state_, rules_, lease, now_); !hopeless.empty()) {
    info.short_bytes = lease.least();
    info.basis = std::move(hopeless);
    return info;
  }
  const Nearest nearest = nearest_device(state_, rules_, lease, now_);
  info.short_bytes = lease.least();
  if (nearest.device != nullptr) {
    info.short_bytes = std::max(need_on(state_, lease, nearest.device->reading.uuid) - nearest.free, Bytes{});
    info.device = nearest.device->reading.uuid;
    info.free = std::max(nearest.free, Bytes{});
    info.unleased = nearest.device->other;
    info.holders = holders_of(state_, *nearest.device, lease, holders_named);
  }
  if (held_ == nullptr) held_ = std::make_unique<Nominations>(state_, rules_, now_);
  for (const Nominations::Entry& entry : held_->entries())
    if (entry.room.waiter == lease.id) info.reserved_devices = entry.room.devices;
  if (const Nominations::Entry* before = nomination_before(state_, rules_, lease, *held_, now_)) {
    info.reserved_for = before->room.waiter;
    info.held_text = text_of_fragment("reserved", nomination_args(state_, *held_, *before, now_));
  }
  if (rules_.safe_mode) info.basis = safe_mode_text(*rules_.safe_mode);
  else estimate_start(lease, info), info.bound = bound_of(state_, rules_, lease, now_);
  if (info.bound && info.eta.value_or(Duration{}) > info.bound->within) info.bound.reset();
  return info;
}

QueueInfo queue_info(const State& state, const Rules& rules, const Lease& lease, Time now) {
  return Estimates(state, rules, now).of(lease);
}

}  // namespace sublet::explain
