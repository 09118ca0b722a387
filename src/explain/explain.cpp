// SPDX-License-Identifier: Apache-2.0
#include "explain/explain.h"

#include "base/size_bounds.h"
#include "core/victims.h"
#include "explain/advice.h"
#include "lease/stack_lease.h"
#include "state/format.h"
#include "state/methods.h"
#include "state/nominations.h"
#include "state/rank.h"
#include "state/reclaim.h"
#include "state/tenant_text.h"

#include <algorithm>

namespace sublet::explain {

using namespace core;

namespace {

std::string held_text(const State& state, const Nominations& held, const Nominations::Entry& entry, Time now) {
  return text_of_fragment("reserved", nomination_args(state, held, entry, now));
}

// It named devices, and there are others.
bool leaves_devices_out(const State& state, const Lease& lease) {
  return !lease.wanted_devices.empty() && lease.wanted_devices.size() < state.devices.by_uuid.size();
}

std::string help_of_other_devices(const State& state, const Lease& lease) {
  return "another device than " + names_of_devices(state, sort_by_index(state, lease.wanted_devices)) +
         " may have free memory sooner";
}

std::vector<std::string> help_hopeless(const State& state, const Rules& rules, const Lease& lease) {
  Bytes most;
  for (const auto& [uuid, device] : state.devices.by_uuid)
    if (!device.lost && may_use(lease, uuid)) most = std::max(most, capacity_of(device, rules));
  std::vector<std::string> helps;
  if (most > Bytes{} && lease.device_count == 1)
    helps.push_back("ask for " + format_size_down(most) + " or less: the present devices can hold that much");
  if (leaves_devices_out(state, lease))
    helps.emplace_back(lease.wanted_devices.size() == 1 ? "ask for any device, not for this device alone"
                                                        : "ask for any devices, not for these devices alone");
  helps.push_back("the device's return: `sublet doctor` says what the driver reports. After " +
                  format_duration(rules.forget_after) + " without it the request is rejected");
  return helps;
}

// "wait for the pause of lease-1 (train, ana), which is in progress": no advice to end a lease that leaves already.
std::string already_leaving(const State& state, const Lease& waiter, const Holder& holder) {
  if (!holder.lease) return {};
  const Lease& lease = *find(state, holder.lease);
  if (is_given_back(state, holder.lease)) return "wait for " + holder.what + ", which gives its memory back";
  if (is_leaving(state, lease))
    return "wait for the pause of " + holder.what + ", which is in progress: it frees memory";
  const PreemptionPlan* plan = plan_for(state, waiter.id);
  if (plan == nullptr) return {};
  const auto victim = std::ranges::find(plan->victims, holder.lease, &Victim::lease);
  if (victim == plan->victims.end()) return {};
  return "wait for the " + std::string(victim->ends ? "end" : "pause") + " of " + holder.what +
         ", which the daemon has planned for this lease";
}

// Whether the memory of one holder suffices, alone or with the free memory.
std::string enough_text(const Lease& waiter, Bytes holds, Bytes lacking, Bytes free) {
  if (holds < lacking) return ", which is not enough alone";
  const std::string there = waiter.device_count > 1 ? " there" : "";
  if (free <= Bytes{} || holds >= lacking + free) return ", which is enough" + there;
  return ", which is enough" + there + " together with the " + format_size_down(free) + " that is free now";
}

std::vector<std::string> help_waiting(const State& state, const Rules& rules, const Lease& lease, Time now) {
  std::vector<std::string> helps;
  if (rules.safe_mode) helps.push_back(safe_mode_text(*rules.safe_mode) + "; " + safe_mode_hint(*rules.safe_mode));
  if (!hopeless_text(state, rules, lease, now).empty()) return help_hopeless(state, rules, lease);
  for (std::string& help : tenant_helps(state, rules, lease, now)) helps.push_back(std::move(help));
  const Nearest nearest = nearest_device(state, rules, lease, now);
  const std::string closed = out_of_service_text(state, rules, lease);
  if (!closed.empty()) helps.push_back(closed + ": an admin takes it back into service by `sublet gpu uncordon`");
  if (nearest.device == nullptr && !closed.empty()) return helps;
  if (nearest.device == nullptr) {
    helps.emplace_back(
        "nothing is granted while the device is unknown: `sublet status` and `sublet doctor` show the cause");
    return helps;
  }
  const Device& device = *nearest.device;
  const Bytes lacking = need_on(state, lease, device.reading.uuid) - nearest.free;
  const Nominations held(state, rules, now);
  if (const Nominations::Entry* before = nomination_before(state, rules, lease, held, now)) {
    helps.push_back(held_text(state, held, *before, now));
    helps.emplace_back("a time limit (`--ttl`) that ends before that start would let it go ahead");
  }
  if (lacking <= Bytes{}) return helps;
  if (std::string word = owners_word(state, rules, lease, now); !word.empty()) helps.push_back(std::move(word));
  if (device.settling >= lacking)
    helps.push_back("wait a moment: " + format_size(device.settling) + " of ended leases are being measured gone on " +
                    name_of(device));
  // A lease that grows keeps its bytes; a paused lease comes back with its size.
  const Bytes has = lease.resize ? lease.resize->vram - need_on(state, lease, device.reading.uuid) : Bytes{};
  if (nearest.free > Bytes{} && !lease.parking)
    helps.push_back("ask for " + format_size_down(has + nearest.free) + " or less" +
                    (lease.device_count > 1 ? " on each device" : "") +
                    (lease.resize ? ": " + format_size_down(nearest.free) + " beyond what it has are free on "
                                  : ": that much is free on ") +
                    name_of(device) + " now");
  for (const Holder& holder : holders_of(state, device, lease, 3)) {
    if (holder.lease && find(state, holder.lease)->ended()) continue;
    if (std::string wait = already_leaving(state, lease, holder); !wait.empty()) {
      helps.push_back(std::move(wait));
      continue;
    }
    const std::string how =
        holder.lease ? "; " + how_to_have_it(state, rules, *find(state, holder.lease), lease, now) : "";
    helps.push_back("the end of " + holder.what + " would free " +
                    (holder.lease ? format_size_down(holder.bytes) : format_size(holder.bytes)) +
                    enough_text(lease, holder.bytes, lacking, nearest.free) + how);
  }
  if (lease.device_count > 1 && !lease.waits_in_place())
    helps.push_back("fewer than " + std::to_string(lease.device_count) + " devices at once may be free sooner");
  if (!lease.waits_in_place() && leaves_devices_out(state, lease)) helps.push_back(help_of_other_devices(state, lease));
  if (rules.automatic && plan_for(state, lease.id) == nullptr) {
    const PreemptionQuery asking{lease, request_of(state, lease.id)};
    const VictimPlan plan = plan_victims(state, rules, asking, now);
    for (const Ineligible& ineligible : plan.ineligible)
      if (const Lease& other = *find(state, ineligible.lease); outranks(lease, other))
        helps.push_back(name_of(other) +
                        " is not paused for it: " + ineligible_text(state, rules, asking, ineligible, now));
  }
  const auto untold_on = [&](const std::vector<std::string>& devices, const Lease& victim) {
    const bool there = std::ranges::any_of(
        victim.devices, [&](const std::string& uuid) { return std::ranges::find(devices, uuid) != devices.end(); });
    return there ? unverified_text(state, rules, victim, now) : std::string();
  };
  if (const PreemptionPlan* preemption = plan_for(state, lease.id); preemption != nullptr && preemption->id != 0)
    for (const LeaseId victim : state.pauses.verifying)
      if (const std::string untold = untold_on(preemption->devices, *find(state, victim)); !untold.empty())
        helps.push_back(name_of(*find(state, victim)) +
                        " reports that it freed its memory, but no reading can confirm that: " + untold);
  const std::size_t place = state.queue.place(lease.id);
  if (place > 1)
    helps.push_back(std::to_string(place - 1) + (place == 2 ? " lease is" : " leases are") +
                    " before it in the queue: a higher priority or tier would move it up");
  return helps;
}

// Its restore failed, and is tried again. Free memory comes by itself; another obstacle may stay.
std::vector<std::string> help_coming_back(const State& state, const Lease& lease) {
  constexpr std::size_t named = 8;
  std::vector<std::string> helps{
      "the daemon tries again at least every 30 s, and resumes the program once this is over: " +
      resume_failure(state, lease.id)};
  const auto& locked_processes = lease.parking->locked_processes;
  if (lacks_memory(state, lease.id) || !locked_processes || locked_processes->empty()) return helps;
  std::string pids;
  for (std::size_t i = 0; i < locked_processes->size() && i < named; ++i)
    pids += " " + std::to_string((*locked_processes)[i].pid);
  if (locked_processes->size() > named) pids += " …";
  helps.push_back(
      "if it stays so: its program can be given up by hand, with what it holds in host memory (`kill -KILL" + pids +
      "`: the pids that were parked, of which some may have ended since); the lease ends when all of its program has");
  return helps;
}

// Its card is gone: until that is back, or forgotten, it stays as it is.
std::vector<std::string> help_without_card(const State& state, const Rules& rules, const Lease& lease) {
  std::vector<std::string> helps{"the device's return: `sublet doctor` says what the driver reports. After " +
                                 format_duration(rules.forget_after) +
                                 " without it the lease ends (`gpu.forget_after`)"};
  if (lease.owner.keeper) helps.push_back(end_command(state, lease) + " ends its program as it is");
  else
    helps.push_back("`sublet stop --force " + to_string(lease.id) +
                    "` ends the lease, and not its program, which Sublet did not start");
  return helps;
}

// Nothing brings it back, and nobody else ends it.
std::vector<std::string> help_poisoned(const State& state, const Lease& lease) {
  const Bytes parked = lease.parking->host_bytes;
  return {end_command(state, lease) + " ends its program and gives back what it reserves" +
          (parked > Bytes{} ? ", and the " + format_size(parked) + " of host memory" : "") +
          ". Nothing makes it run again: what it had not saved itself is lost"};
}

std::vector<std::string> help_otherwise(const State& state, const Lease& lease, Time now) {
  const std::string id = to_string(lease.id);
  if (const auto slice = leaves_in(state, lease.id, now))
    return {"next time slice in about " + format_duration(*slice) +
            ": the lease is paused then, and resumes in its own time slice"};
  if (lease.state == LeaseState::active && lease.owner.kind == OwnerKind::token && lease.expires_at)
    return {"renew it within " + format_duration(std::max(*lease.expires_at - now, Duration{})) + ": `sublet renew " +
            id + "`"};
  if (lease.ended() && lease.kept_until)
    return {"its memory stays reserved for the next start of its program, for at most " +
            format_duration(std::max(*lease.kept_until - now, Duration{})) +
            (lease.tag.empty() ? "" : "; `sublet stop " + lease.tag + "` frees it at once")};
  if (lease.ended() && use_of(state, lease.id).settling)
    return {"its bytes are charged until a snapshot shows them gone: a process of it may still live"};
  return {};
}

}  // namespace

std::optional<Duration> leaves_in(const State& state, LeaseId lease, Time now) {
  std::optional<Duration> soonest;
  for (const auto& [uuid, slice] : state.preemption.slices)
    if (holds(slice.leaves, lease)) soonest = std::min(soonest.value_or(Duration::max()), std::max(slice.at - now, {}));
  return soonest;
}

std::string why_never_paused(const State& state, const Lease& lease) {
  const auto method = pause_method_of(state, lease);
  return method ? "" : method.error().detail;
}

std::vector<std::string> what_would_help(const State& state, const Rules& rules, const Lease& lease, Time now) {
  const std::string id = to_string(lease.id);
  if (lease.parking && given_up_device(state, lease, rules, now) != nullptr)
    return help_without_card(state, rules, lease);
  if (state.queue.place(lease.id) > 0) return help_waiting(state, rules, lease, now);
  if (lease.held_back_at) return {"`sublet resume " + id + "` lets it wait again, at its place"};
  if (lease.state == LeaseState::offered)
    return {"claim it within " + format_duration(std::max(*lease.offer_ends_at - now, Duration{})) +
            ": `sublet claim " + id + "`"};
  if (lease.state == LeaseState::resuming && !resume_failure(state, lease.id).empty())
    return help_coming_back(state, lease);
  if (lease.state == LeaseState::poisoned) return help_poisoned(state, lease);
  const bool stays =
      (lease.state == LeaseState::pausing || lease.state == LeaseState::paused) && !lease.parking->resume_requested;
  if (stays && lease.parking->cause.kind == PauseCauseKind::idle && lease.parking->cause.preemptor)
    return {"`sublet touch " + id + "` by its owner; otherwise it resumes once its memory is free and no lease waits"};
  if (stays)
    return {"`sublet resume " + id +
            "` by its owner or an admin: the lease stays paused until then, even if memory is free"};
  std::vector<std::string> helps = help_otherwise(state, lease, now);
  if (lease.state != LeaseState::active) return helps;
  if (std::string standing = holder_text(state, lease); !standing.empty()) helps.push_back(std::move(standing));
  const Obstacle* obstacle = last_obstacle(state, lease.id);
  if (obstacle == nullptr) return helps;
  const auto method = pause_method_of(state, lease);
  const std::string hint(method ? obstacle->advice() : std::string_view(method.error().hint));
  if (!hint.empty()) helps.insert(helps.begin(), "to pause it: " + hint);
  return helps;
}

PauseCause cause_now(const State& state, const PauseCause& cause) {
  if (cause.kind != PauseCauseKind::idle || !cause.preemptor) return cause;
  PauseCause now{cause.kind, cause.preemptor, args("idle", cause.args.duration("idle"))};
  const Lease* preemptor = find(state, cause.preemptor);
  if (preemptor == nullptr || preemptor->ended()) return now;
  const bool waits = preemptor->state == LeaseState::queued || preemptor->waits_in_place();
  now.args.add(waits ? "preemptor" : "holder", name_of(*preemptor));
  return now;
}

}  // namespace sublet::explain
