// SPDX-License-Identifier: Apache-2.0
// Facts of capabilities above the engine: another rank or limit, an end with a reason, devices out of service, and
// memory that is kept for the next start of a program.
#include "core/step_capability.h"
#include "core/current_step.h"
#include "core/step_end.h"
#include "core/step_grant.h"
#include "core/step_named.h"
#include "core/step_tenants.h"
#include "state/reclaim.h"

#include "state/format.h"

#include <algorithm>

namespace sublet::core {

static void rank(Step& step, Lease& lease, const Amend& fact) {
  const bool waits = step.state.queue.contains(lease.id);
  rebook(step.state, lease, [&] {
    lease.tier = fact.tier.value_or(lease.tier);
    lease.priority = fact.priority.value_or(lease.priority);
    lease.pausable = fact.pausable.value_or(lease.pausable);
    if (fact.charged) charge_to(step.state, lease, *fact.charged);
  });
  step.state.preemption.stale = true;  // others may be its victims now, or it may be theirs
  if (!waits) return;
  if (lease.waits_in_place()) return requeue_in_place(step.state, lease);
  step.state.queue.erase(lease.id);
  insert_waiter(step, lease);
}

Result<LeaseId> on(Step& step, const Amend& fact) {
  const auto found = find_for(step, fact.lease, 0);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.ended()) return Error{Code::Stale, name_of(lease) + " has ended", "change its next start instead"};
  const bool other_user = fact.charged && fact.charged->uid != lease.uid;
  const Lease* holder = other_user && !lease.tag.empty() ? find_tag(step.state, fact.charged->uid, lease.tag) : nullptr;
  if (holder != nullptr)
    return Error{Code::InUse,
                 "user " + fact.charged->user + " cannot take over " + name_of(lease) + ": the tag '" + lease.tag +
                     "' belongs to the user's " + to_string(holder->id),
                 "release that lease first"};
  ReasonArgs changes;
  if (other_user) changes.add("user", fact.charged->user);
  if (fact.pausable.value_or(lease.pausable) != lease.pausable) changes.add("pausable", to_string(*fact.pausable));
  if (fact.tier.value_or(lease.tier) != lease.tier) changes.add("tier", to_string(*fact.tier));
  if (fact.priority.value_or(lease.priority) != lease.priority) changes.add("priority", *fact.priority);
  if (fact.charged) {
    Lease as = lease;
    as.uid = fact.charged->uid, as.user = fact.charged->user, as.tenant = fact.charged->tenant;
    as.tier = fact.tier.value_or(lease.tier), as.priority = fact.priority.value_or(lease.priority);
    if (const Status ok = check_charged(step, lease, as); !ok) return ok.error();
  }
  if (!changes.empty()) rank(step, lease, fact);
  if (fact.ceiling.value_or(lease.ceiling) != lease.ceiling) {
    lease.ceiling = *fact.ceiling;
    if (lease.ceiling > Bytes{}) changes.add("ceiling", lease.ceiling);
    else changes.add("no_ceiling", true);
  }
  if (fact.soft_limit.value_or(lease.soft_limit) != lease.soft_limit) {
    lease.soft_limit = *fact.soft_limit;
    if (lease.soft_limit > Bytes{}) changes.add("soft", lease.soft_limit);
    else changes.add("no_soft", true);
  }
  if (fact.notice) {
    LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
    runtime.notice = *fact.notice;
    runtime.noticed_at = {};
    step.state.preemption.stale = true;
  }
  if (changes.empty()) return lease.id;
  explain(step, lease, ReasonKind::amended, std::move(changes));
  touch(step, lease);
  return lease.id;
}

Result<LeaseId> on(Step& step, const End& fact) {
  const auto found = find_for(step, fact.lease, 0);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.ended() && fact.kill &&
      may_allocate(step, lease)) {  // it takes memory instead of ending: its grace is over
    kill(step, lease, fact.args);
    return lease.id;
  }
  if (!lease.reserves() || lease.state == LeaseState::offered || (lease.state != LeaseState::active && !fact.kill))
    return Error{Code::Stale, name_of(lease) + " is " + std::string(to_string(lease.state)),
                 "only an active lease is "
                 "ended by its limit"};
  ReasonArgs args = fact.args;
  args.add("killed", fact.kill);
  if (lease.stop_requested) lease.stop_at = step.now;  // from here on it has the grace of this end
  end(step, lease, fact.why, fact.kind, std::move(args));
  if (fact.kill && program_may_live(step, lease)) kill(step, lease);
  schedule(step.state, lease, step.rules);
  return lease.id;
}

Result<LeaseId> on(Step& step, const Serve& fact) {
  auto& out_of_service = step.state.devices.out_of_service;
  if (fact.why.empty()) out_of_service.erase(fact.device);
  else out_of_service[fact.device] = fact.why;
  for (auto& [uuid, device] : step.state.devices.by_uuid) {
    if (uuid != fact.device && device.reading.parent != fact.device) continue;
    mark_moved(step.state, device);
    step.state.preemption.stale = true;  // nothing is freed there any more, or again
  }
  return LeaseId{};
}

Result<LeaseId> on(Step& step, const Remark& fact) {
  const auto found = find_for(step, fact.lease, 0);
  if (!found) return found.error();
  explain(step, **found, fact.kind, fact.args);
  return fact.lease;
}

Result<LeaseId> on(Step& step, const Reclaimable& fact) {
  const auto found = find_for(step, fact.lease, 0);
  if (!found) return found.error();
  if (fact.terms && (*found)->ended()) return Error{Code::Stale, name_of(**found) + " has ended", ""};
  step.state.preemption.stale |= put_reclaimable(step.state, fact);
  return fact.lease;
}

// -------------------------------------------------------------------------------- kept memory

Result<LeaseId> on(Step& step, const Keep& fact) {
  const auto found = find_for(step, fact.lease, 0);
  if (!found) return found.error();
  Lease& lease = **found;
  if (!lease.ended())
    return Error{Code::Stale, name_of(lease) + " has not ended", "its memory is reserved while it lives"};
  if (fact.until <= step.now) {
    if (lease.kept_until) drop_kept(step, lease);
    return lease.id;
  }
  if (!use_of(step.state, lease.id).settling) return lease.id;  // nothing is left to keep
  lease.kept_until = fact.until;
  explain(step, lease, ReasonKind::memory_kept, args("kept", fact.until - step.now));
  schedule(step.state, lease, step.rules);
  touch(step, lease);
  return lease.id;
}

// From here on its bytes settle like those of any ended lease.
void drop_kept(Step& step, Lease& lease) {
  lease.kept_until.reset();
  note(step, "memory_kept");
  schedule(step.state, lease, step.rules);
  touch(step, lease);
  step.snapshot_wanted = true;
}

static bool is_measured_gone(const Step& step, const Lease& lease) {
  if (program_may_live(step, lease)) return false;
  if (step.state.devices.snapshot_began < std::max(*lease.ended_at, step.state.leases.runtime.at(lease.id).gone_at))
    return false;
  return std::ranges::all_of(lease.devices, [&](const std::string& uuid) {
    const Charge& charge = charge_on(step.state, lease.id, uuid);
    return charge.used <= Bytes{} && !charge.untold &&
           is_known(step.state, step.state.devices.by_uuid.at(uuid), step.rules, step.now);
  });
}

// The next start of a program gets the kept memory where it was, before all waiters. A lease for which the memory is
// too small, or not measured free, waits as any other.
void take_over(Step& step, LeaseId kept, Lease& lease) {
  Lease* before = find(step, kept);
  if (before == nullptr || !before->kept_until) return;
  drop_kept(step, *before);
  if (!is_measured_gone(step, *before)) return;
  const std::vector<std::string> devices = before->devices;
  const Bytes kept_bytes = before->vram;
  unbook(step.state, *before);
  step.ended.push_back(before->id);
  reindex(step.state, step.rules, step.now);
  place_waiters(step);  // it may have been limited by what was kept for it
  if (lease.vram > kept_bytes || devices.size() != static_cast<std::size_t>(lease.device_count)) return;
  const auto fits = [&](const std::string& uuid) {
    const auto& room = step.state.devices.by_uuid.at(uuid).indexed.room;
    return may_use(lease, uuid) && room && room->free >= lease.vram;
  };
  if (std::ranges::all_of(devices, fits) && !step.state.queue.key(lease.id)->limited)
    grant(step, lease, {lease.id, devices, lease.vram});
}

}  // namespace sublet::core
