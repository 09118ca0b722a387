// SPDX-License-Identifier: Apache-2.0
#include "explain/prospects.h"

#include "core/format.h"
#include "core/ledger_set.h"
#include "core/methods.h"
#include "core/slices.h"

#include <algorithm>
#include <set>
#include <vector>

namespace sublet::explain {

using namespace core;

namespace {

constexpr std::size_t own_named = 3;

std::string names_of(const State& state, const std::vector<LeaseId>& leases) {
  std::string names;
  for (const LeaseId id : leases)
    if (const Lease* lease = find(state, id)) names += (names.empty() ? "" : ", ") + name_of(*lease);
  return names;
}

std::vector<LeaseId> leases_of(const std::vector<Victim>& victims) {
  std::vector<LeaseId> leases;
  for (const Victim& victim : victims) leases.push_back(victim.lease);
  return leases;
}

// "its pause takes about 4 s"; several pauses come one after the other.
std::string takes_text(std::size_t count, Duration takes) {
  return (count == 1 ? "its pause takes about " : "their pauses take about ") + format_duration(takes);
}

// True if a program has to end: it has its grace, and nobody knows how much of that it takes.
bool any_has_to_end(const State& state, const std::vector<Victim>& victims) {
  return std::any_of(victims.begin(), victims.end(),
                     [&](const Victim& victim) { return victim.ends && find(state, victim.lease)->had_process; });
}

bool any_ends(const std::vector<Victim>& victims) {
  return std::any_of(victims.begin(), victims.end(), [](const Victim& victim) { return victim.ends; });
}

// "lease-1 (crawl, ana) cannot be paused, and is ended: it has its time to end"
std::string ends_text(const State& state, const std::vector<Victim>& victims) {
  std::vector<LeaseId> ending;
  bool has_program = false;
  for (const Victim& victim : victims)
    if (victim.ends) ending.push_back(victim.lease), has_program |= find(state, victim.lease)->had_process;
  const bool one = ending.size() == 1;
  return names_of(state, ending) + " cannot be paused, and " + (one ? "is" : "are") + " ended" +
         (!has_program ? ""
          : one        ? ": it has its time to end"
                       : ": they have their time to end");
}

std::string takes_text(const State& state, const std::vector<Victim>& victims) {
  return any_ends(victims) ? ends_text(state, victims) : takes_text(victims.size(), yields_in(state, victims));
}

Sooner unless_beyond_ledger(Sooner sooner, const State& state, const Rules& rules, std::uint32_t preemptor,
                            const std::vector<Victim>& victims) {
  const std::string why_not = beyond_ledger(state, rules, preemptor, victims);
  if (why_not.empty()) return sooner;
  return {std::nullopt, sooner.basis + ", but " + why_not};
}

// ------------------------------------------------------------------------------ its plan in progress

struct Yielding {
  std::vector<LeaseId> who;
  Duration takes{};              // in all
  std::optional<Duration> left;  // of that; unset: nobody knows
  std::string slow;              // of one that takes longer than it should
};

void add_left(std::optional<Duration>& left, std::optional<Duration> more) {
  if (!more) left.reset();
  else if (left) *left += *more;
}

// The leases that are pausing on these devices already, for any preemptor.
Yielding yielding_on(const State& state, const std::vector<std::string>& devices, Time now) {
  Yielding yielding;
  yielding.left = Duration{};
  for (const std::string& device : devices)
    for (const LeaseId id : state.devices.by_uuid.at(device).leases) {
      const Lease& other = *find(state, id);
      if (!is_leaving(state, other) || holds(yielding.who, id)) continue;
      const auto left = time_left(state, id, now);
      const Duration since = now - other.parking->since;
      yielding.who.push_back(id);
      yielding.takes += since + left.value_or(Duration{});
      if (!left) yielding.slow = name_of(other) + " is being paused since " + format_duration(since);
      add_left(yielding.left, left);
    }
  return yielding;
}

Sooner by_plan(const State& state, const Rules& rules, const PreemptionPlan& preemption, Time now) {
  Yielding yielding = yielding_on(state, preemption.devices, now);
  for (const Victim& victim : preemption.victims) {
    yielding.who.push_back(victim.lease);
    yielding.takes += yields_in(state, victim);
    add_left(yielding.left, victim.ends ? std::nullopt : std::optional(yields_in(state, victim)));
  }
  if (yielding.who.empty()) return {};
  Sooner sooner{yielding.left, "memory is being freed for it by pausing " + names_of(state, yielding.who)};
  if (!yielding.slow.empty()) sooner.basis += ": " + yielding.slow + ", which takes longer than it should";
  else if (any_ends(preemption.victims)) sooner.basis += ": " + takes_text(state, preemption.victims);
  else sooner.basis += ": " + takes_text(yielding.who.size(), yielding.takes);
  return unless_beyond_ledger(std::move(sooner), state, rules, find(state, preemption.preemptor())->uid,
                              preemption.victims);
}

// ------------------------------------------------------------------------------ its next time slice

std::optional<Sooner> by_slice_of(const State& state, const Rules& rules, LeaseId lease, Time now) {
  const NextSlice* first = nullptr;
  for (const auto& [uuid, slice] : state.preemption.slices)
    if (holds(slice.enters, lease) && (first == nullptr || slice.at < first->at)) first = &slice;
  if (first == nullptr) return std::nullopt;
  const NextSlice& slice = *first;
  const auto leaves = as_victims(state, rules, slice.leaves, find(state, lease)->uid, slice.devices, now);
  const Duration takes = yields_in(state, leaves);
  Sooner sooner{std::max(slice.at - now, Duration{}) + takes,
                "its time slice begins then: " + names_of(state, slice.leaves) +
                    (slice.leaves.size() == 1 ? " is paused, and " : " are paused, and ") +
                    takes_text(slice.leaves.size(), takes)};
  return unless_beyond_ledger(std::move(sooner), state, rules, find(state, lease)->uid, leaves);
}

// ------------------------------------------------------------------------------ they may be asked a little later

// True if no lease that stands before it may take the memory that others free there.
bool is_first_there(const State& state, const Lease& lease, const std::vector<std::string>& devices) {
  const std::size_t place = state.queue.place(lease.id);
  if (place > parked_preemptors) return false;
  const std::vector<LeaseId> before = state.queue.in_order(place - 1);
  return std::none_of(before.begin(), before.end(), [&](LeaseId id) {
    return std::any_of(devices.begin(), devices.end(),
                       [&](const std::string& uuid) { return may_use(*find(state, id), uuid); });
  });
}

Sooner by_patience(const State& state, const Rules& rules, const Lease& lease, Time now) {
  const auto preemption_request = request_of(state, lease.id);
  const bool asks = may_ask(state, rules, lease) && may_have_victims(state, lease.tier);
  if (!preemption_request && !asks) return {};
  const PreemptionQuery query{lease, preemption_request, /*lists_all=*/false};
  const VictimPlan at_once = plan_victims(state, rules, query, now);
  if (at_once.found) {
    for (const std::string& device : at_once.devices)
      if (const PreemptionPlan* other = plan_on(state, device))
        return {{},
                "memory on " + names_of_devices(state, {device}) + " is being freed for " +
                    name_of(*find(state, other->preemptor())) + " first"};
    return {};
  }
  const VictimPlan later = plan_later(state, rules, query, now);
  if (!later.found && at_once.beyond_ledger) {
    const PreemptionQuery all{lease, preemption_request};
    return {{}, no_victims_text(state, rules, all, plan_victims(state, rules, all, now).no_victims)};
  }
  if (!later.found || later.wait_for.empty()) return {};
  Sooner sooner{{}, later.wait_for + "; then " + takes_text(state, later.victims)};
  if (later.wait && !any_has_to_end(state, later.victims) && is_first_there(state, lease, later.devices))
    sooner.in = *later.wait + yields_in(state, later.victims);
  return unless_beyond_ledger(std::move(sooner), state, rules, lease.uid, later.victims);
}

// ------------------------------------------------------------------------------ what else there is

// The fewest of the user's own leases that are enough on all devices, without those that are pausing already.
std::string own_text(const State& state, const Rules& rules, const PreemptionQuery& query, const VictimPlan& plan,
                     std::uint32_t uid, Time now) {
  std::vector<LeaseId> own;
  for (const std::string& uuid : plan.devices) {
    const Device& device = state.devices.by_uuid.at(uuid);
    Bytes lacks = lacking(state, rules, query, device, now);
    for (const auto& [charged, id] : device.by_charge) {
      if (lacks <= Bytes{}) break;
      const Lease& lease = *find(state, id);
      if (id == query.lease.id || lease.uid != uid || lease.ended() || lease.state == LeaseState::pausing) continue;
      lacks -= charged;
      if (!holds(own, id)) own.push_back(id);
    }
    if (lacks > Bytes{} || own.size() > own_named) return {};
  }
  if (own.empty()) return {};
  std::string words;
  for (const LeaseId id : own) words += (words.empty() ? "" : ", ") + end_command(state, *find(state, id));
  return words + (own.size() == 1 ? " ends a lease" : " end leases") + " of the same user, which would free enough";
}

// The user's own programs that only lack a pause grant: with the grant they are paused, and need not end.
std::string grants_text(const State& state, const PreemptionQuery& query, const VictimPlan& plan, std::uint32_t uid) {
  std::set<std::string> consumers;
  for (const std::string& uuid : plan.devices)
    for (const LeaseId id : state.devices.by_uuid.at(uuid).leases) {
      const Lease& lease = *find(state, id);
      const bool own = id != query.lease.id && lease.uid == uid && lease.state == LeaseState::active;
      if (own && lacks_a_grant(state, lease)) consumers.insert(lease.consumer);
    }
  std::string text;
  for (const std::string& consumer : consumers)
    text += (text.empty() ? "`sublet pause --grant " : ", `sublet pause --grant ") + consumer + "`";
  if (!text.empty()) text += " lets its programs be parked";
  return consumers.size() > own_named ? std::string() : text;
}

std::string others_text(const State& state, const Rules& rules, const PreemptionQuery& query, std::uint32_t uid,
                        Time now) {
  if (query.preemption_request && query.preemption_request->any_user) return {};
  PreemptionQuery admins = query;
  admins.preemption_request = PreemptionRequest{uid, true};
  const VictimPlan plan = plan_victims(state, rules, admins, now);
  if (!plan.found || plan.victims.empty()) return {};
  std::string text = "a request by an admin would pause " + names_of(state, leases_of(plan.victims)) + ", and so can ";
  if (plan.victims.size() > 1) return text + "their owners";
  const bool ends = plan.victims.front().ends;
  return text + "its owner: `sublet " + (ends ? "stop " : "pause ") + to_string(plan.victims.front().lease) + "`";
}

}  // namespace

Sooner sooner_by_others(const State& state, const Rules& rules, const Lease& lease, Time now) {
  if (const PreemptionPlan* preemption = plan_for(state, lease.id)) return by_plan(state, rules, *preemption, now);
  if (auto slice = by_slice_of(state, rules, lease.id, now)) return *slice;
  return by_patience(state, rules, lease, now);
}

std::string what_else(const State& state, const Rules& rules, const PreemptionQuery& query, const VictimPlan& plan,
                      Time now) {
  const std::uint32_t uid =
      query.preemption_request && !query.preemption_request->any_user ? query.preemption_request->uid : query.lease.uid;
  std::vector<std::string> ways;
  if (const auto slice = by_slice_of(state, rules, query.lease.id, now); slice && slice->in)
    ways.push_back("it waits for about " + format_duration(*slice->in) + ": " + slice->basis);
  for (std::string way : {grants_text(state, query, plan, uid), own_text(state, rules, query, plan, uid, now),
                          others_text(state, rules, query, uid, now)})
    if (!way.empty()) ways.push_back(std::move(way));
  if (ways.empty())
    ways.emplace_back(query.lease.id ? "`sublet why " + to_string(query.lease.id) + "` says what would help"
                                     : "`sublet ps` shows which leases hold memory; `sublet run` and `sublet hold` "
                                       "wait for free memory or a time slice");
  std::string text;
  for (const std::string& way : ways) text += (text.empty() ? "" : "; ") + way;
  return text;
}

std::string owners_word(const State& state, const Rules& rules, const Lease& lease, Time now) {
  if (plan_for(state, lease.id) != nullptr || request_of(state, lease.id)) return {};
  const VictimPlan room =
      plan_now_or_later(state, rules, PreemptionQuery{lease, PreemptionRequest{lease.uid, false}}, now);
  if (!room.found || room.victims.empty()) return {};
  for (const Victim& victim : room.victims)
    if (find(state, victim.lease)->uid != lease.uid) return {};
  return "a request by its owner is enough: `sublet preempt " + to_string(lease.id) + "` pauses " +
         names_of(state, leases_of(room.victims)) + " of the same user for it; " + takes_text(state, room.victims) +
         (room.wait_for.empty() ? "" : ", once it may be: " + room.wait_for);
}

std::string how_to_have_it(const State& state, const Rules& rules, const Lease& holder, const Lease& waiter, Time now) {
  const std::string id = to_string(holder.id);
  if (holder.stop_requested) return "its program is being ended";
  const std::string stop = "end it (" + end_command(state, holder) + ")";
  const bool can_pause =
      holder.state == LeaseState::active && way_to_yield(state, rules, holder, waiter.uid, now).parks();
  std::string pause = can_pause ? "pause it (`sublet pause " + id + "`) or " : "";
  if (holder.state == LeaseState::active && lacks_a_grant(state, holder)) {
    pause = "let it be parked (`sublet pause --grant " + holder.consumer + "`) or ";
    if (holder.uid != waiter.uid)
      return "its owner can " + pause + stop + ", and an admin can end it";  // no grant of his
  }
  return (holder.uid == waiter.uid ? "it is the same user's, who can " : "its owner or an admin can ") + pause + stop;
}

}  // namespace sublet::explain
