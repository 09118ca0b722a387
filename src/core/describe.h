// SPDX-License-Identifier: Apache-2.0
// For tests: all that a lease is, as one line, to compare leases that went through a store.
#pragma once

#include "core/lease.h"
#include "core/reason.h"

#include <fmt/format.h>

#include <string>

namespace sublet::core {

// Every field by name, so that a new one must be added here as well.
inline std::string describe(const Lease& lease) {
  const auto& [id, generation, state, end_reason, uid, user, tenant, consumer, nameless, tag, command, tier, priority,
               pausable, vram, min_vram, ceiling, soft_limit, device_count, wanted_device, ttl, owner, token,
               asked_vram, devices, resize, sized, parking, cooperation, unfit, preemption_request, had_process,
               lapsed_offers, exit_status, stop_requested, created_at, queued_at, granted_at, resumed_at, parked_for,
               parked_at, offer_ends_at, expires_at, unheld_since, stop_at, ended_at, kept_until, peak_used, booked] =
      lease;
  std::string names;
  for (const auto& [process, cgroup] : booked)
    names += fmt::format("{}:{}{};", process.pid, process.start_ticks, cgroup);
  if (parking) {
    const auto& [method, since, cause, host_bytes, measured, residue, resume_requested, then_stop, told,
                 locked_processes, held_when_paused, before, deserted] = *parking;
    if (deserted) names += fmt::format(" deserted {}", deserted->ns);
    names += fmt::format(" {} {} {} {} {} {} {} {} {}", to_string(method), since.ns, text_of(cause), host_bytes.count,
                         measured, residue.count, resume_requested, then_stop, told);
    if (!locked_processes) names += " ?";
    else
      for (const ProcessRef& process : *locked_processes)
        names += fmt::format(" {}:{}", process.pid, process.start_ticks);
    for (const auto& [all, of, kept, on_top, tops, beside] : held_when_paused) {
      names += fmt::format(" yielded {} {} {} {} {}", all.count, kept.count, on_top.count, tops.count, beside.count);
      for (const auto& [process, bytes] : of)
        names += fmt::format(" {}:{} {}", process.pid, process.start_ticks, bytes.count);
    }
    if (before)
      names += fmt::format(" before {} {} {}", to_string(before->method), before->bytes.count, before->measured);
  }
  if (cooperation) {
    const auto& [way, keeps, asked, address, pause_signal, resume_signal] = *cooperation;
    names += fmt::format(" {} {} {}:{} {} {} {}", to_string(way), keeps.count, asked.pid, asked.start_ticks, address,
                         pause_signal, resume_signal);
  }
  if (unfit) names += fmt::format(" {} {}", to_string(unfit->kind), unfit->why);
  if (preemption_request)
    names += fmt::format(" by {} {} at {}", preemption_request->uid, preemption_request->any_user,
                         preemption_request->given_at.value_or(Time{}).ns);
  if (ceiling > Bytes{} || soft_limit > Bytes{}) names += fmt::format(" limits {} {}", ceiling.count, soft_limit.count);
  if (kept_until) names += fmt::format(" kept until {}", kept_until->ns);
  if (nameless) names += " nameless";
  if (sized) names += fmt::format(" {} until {} less {}", sized->mean.count, sized->until.ns, sized->parked.count());
  if (resize) names += fmt::format(" to {} since {}", resize->vram.count, resize->queued_at.ns);
  names += fmt::format(" {}x {} {} {}", device_count, asked_vram.count, min_vram.count, fmt::join(devices, ","));
  const auto time = [](const std::optional<Time>& t) { return t ? std::to_string(t->ns) : "-"; };
  return fmt::format(
      "{} {} {} {} | {} {} {} {} {} {} | {} {} {} {} {} {} | {} {}/{} {}/{} {} {} {} | {} {} {} {} | "
      "{} {} {} {} {} {} {} {} {} {} {} {} {}",
      id.number, generation, to_string(state), to_string(end_reason), uid, user, tenant, consumer, tag, command,
      to_string(tier), priority, to_string(pausable), vram.count, wanted_device, ttl ? ttl->count() : -1,
      to_string(owner.kind), owner.process.pid, owner.process.start_ticks, owner.keeper.pid, owner.keeper.start_ticks,
      owner.exit_record, token, devices.size(), had_process, lapsed_offers, exit_status.value_or(-1), stop_requested,
      created_at.ns, queued_at.ns, time(granted_at), time(resumed_at), parked_for.count(), time(parked_at),
      time(offer_ends_at), time(expires_at), time(unheld_since), time(stop_at), time(ended_at), peak_used.count, names);
}

}  // namespace sublet::core
