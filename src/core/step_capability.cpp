// SPDX-License-Identifier: Apache-2.0
// Facts of capabilities above the engine: another rank or limit, an end with a reason, and memory that is kept for the
// next start of a program.
#include "core/stepper.h"

#include "core/format.h"

#include <algorithm>

namespace sublet::core {

void Stepper::rank(Lease& lease, const Amend& fact) {
  const bool waits = state_.queue_.contains(lease.id);
  state_.rebook(lease, [&] {
    lease.tier = fact.tier.value_or(lease.tier);
    lease.priority = fact.priority.value_or(lease.priority);
    lease.pausable = fact.pausable.value_or(lease.pausable);
    if (fact.charged) state_.charge_to(lease, *fact.charged);
  });
  state_.room_stale_ = true;  // others may be its victims now, or it may be theirs
  if (!waits) return;
  if (lease.waits_in_place()) return state_.requeue_in_place(lease);
  state_.queue_.erase(lease.id);
  state_.queue_.insert(lease);
  if (!lease.wanted_device.empty()) state_.opened_.push_back(lease.wanted_device);
}

Result<LeaseId> Stepper::on(const Amend& fact) {
  const auto found = find_for(fact.lease, 0);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.ended()) return Error{Code::Stale, name_of(lease) + " has ended", "change its next start instead"};
  const bool other_user = fact.charged && fact.charged->uid != lease.uid;
  const Lease* holder = other_user && !lease.tag.empty() ? state_.find_tag(fact.charged->uid, lease.tag) : nullptr;
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
  if (!changes.empty()) rank(lease, fact);
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
  if (changes.empty()) return lease.id;
  explain(lease, ReasonKind::amended, std::move(changes));
  touch(lease);
  return lease.id;
}

Result<LeaseId> Stepper::on(const End& fact) {
  const auto found = find_for(fact.lease, 0);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.state != LeaseState::active)
    return Error{Code::Stale, name_of(lease) + " is " + std::string(to_string(lease.state)),
                 "only an active lease is "
                 "ended by its limit"};
  ReasonArgs args = fact.args;
  args.add("killed", fact.kill);
  if (lease.stop_requested) lease.stop_at = now_;  // from here on it has the grace of this end
  end(lease, fact.why, fact.kind, std::move(args));
  if (fact.kill && program_may_live(lease)) kill(lease);
  state_.schedule(lease, rules_);
  return lease.id;
}

Result<LeaseId> Stepper::on(const Remark& fact) {
  const auto found = find_for(fact.lease, 0);
  if (!found) return found.error();
  explain(**found, fact.kind, fact.args);
  return fact.lease;
}

// -------------------------------------------------------------------------------- kept memory

Result<LeaseId> Stepper::on(const Keep& fact) {
  const auto found = find_for(fact.lease, 0);
  if (!found) return found.error();
  Lease& lease = **found;
  if (!lease.ended())
    return Error{Code::Stale, name_of(lease) + " has not ended", "its memory is reserved while it lives"};
  if (fact.until <= now_) {
    if (lease.kept_until) drop_kept(lease);
    return lease.id;
  }
  if (!state_.use(lease.id).settling) return lease.id;  // nothing is left to keep
  lease.kept_until = fact.until;
  explain(lease, ReasonKind::memory_kept, args("kept", fact.until - now_));
  state_.schedule(lease, rules_);
  touch(lease);
  return lease.id;
}

// From here on its bytes settle like those of any ended lease.
void Stepper::drop_kept(Lease& lease) {
  lease.kept_until.reset();
  note("memory_kept");
  state_.schedule(lease, rules_);
  touch(lease);
  want_snapshot();
}

bool Stepper::is_measured_gone(const Lease& lease) const {
  if (program_may_live(lease)) return false;
  if (state_.snapshot_began_ < std::max(*lease.ended_at, state_.runtime_.at(lease.id).gone_at)) return false;
  return std::ranges::all_of(lease.devices, [&](const std::string& uuid) {
    const Charge& charge = state_.charge(lease.id, uuid);
    return charge.used <= Bytes{} && !charge.untold && state_.known(state_.devices_.at(uuid), rules_, now_);
  });
}

// The next start of a program gets the kept memory where it was, before all waiters. A lease for which the memory is
// too small, or not measured free, waits as any other.
void Stepper::take_over(LeaseId kept, Lease& lease) {
  Lease* before = find(kept);
  if (before == nullptr || !before->kept_until) return;
  drop_kept(*before);
  if (!is_measured_gone(*before)) return;
  const std::vector<std::string> devices = before->devices;
  const Bytes kept_bytes = before->vram;
  state_.unbook(*before);
  ended_.push_back(before->id);
  state_.reindex(rules_, now_);
  if (lease.vram > kept_bytes || devices.size() != static_cast<std::size_t>(lease.device_count)) return;
  if (!lease.wanted_device.empty() && lease.wanted_device != devices.front()) return;
  const auto fits = [&](const std::string& uuid) {
    const auto& room = state_.devices_.at(uuid).indexed.room;
    return room && room->free >= lease.vram;
  };
  if (std::ranges::all_of(devices, fits)) grant(lease, {lease.id, devices, lease.vram});
}

}  // namespace sublet::core
