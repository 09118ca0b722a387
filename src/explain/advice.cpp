// SPDX-License-Identifier: Apache-2.0
#include "explain/advice.h"

#include "explain/explain.h"
#include "state/format.h"
#include "state/methods.h"

#include <algorithm>
#include <set>

namespace sublet::explain {

using namespace core;

namespace {

constexpr std::size_t own_named = 3;

std::vector<LeaseId> leases_of(const std::vector<Victim>& victims) {
  std::vector<LeaseId> leases;
  for (const Victim& victim : victims) leases.push_back(victim.lease);
  return leases;
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

std::string names_of(const State& state, const std::vector<LeaseId>& leases) {
  std::string names;
  for (const LeaseId id : leases)
    if (const Lease* lease = find(state, id)) names += (names.empty() ? "" : ", ") + name_of(*lease);
  return names;
}

std::string takes_text(std::size_t count, Duration takes) {
  return (count == 1 ? "its pause takes about " : "their pauses take about ") + format_duration(takes);
}

std::string takes_text(const State& state, const std::vector<Victim>& victims) {
  const bool ends = std::ranges::any_of(victims, &Victim::ends);
  return ends ? ends_text(state, victims) : takes_text(victims.size(), yields_in(state, victims));
}

std::string what_else(const State& state, const Rules& rules, const PreemptionQuery& query, const VictimPlan& plan,
                      Time now) {
  const std::uint32_t uid =
      query.preemption_request && !query.preemption_request->any_user ? query.preemption_request->uid : query.lease.uid;
  std::vector<std::string> ways;
  if (query.lease.id && state.queue.contains(query.lease.id))
    if (const QueueInfo waits = queue_info(state, rules, query.lease, now); waits.eta)
      ways.push_back("it waits for about " + format_duration(*waits.eta) + ": " + waits.basis);
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
