// SPDX-License-Identifier: Apache-2.0
#include "engine/counters.h"

#include <algorithm>

namespace sublet::engine {
namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void Counters::reset(const core::State& state, Time now) {
  for (const auto& [id, entry] : live_) charge(entry, now, used_);
  live_.clear();
  of_user_.clear();
  for (const auto& [id, lease] : state.leases.by_id) {
    if (!lease.ended()) enter(lease, now);
  }
}

void Counters::enter(const core::Lease& lease, Time now) {
  live_[lease.id] = {.uid = lease.uid,
                     .who = {lease.user, lease.tenant},
                     .reserved = lease.reserved(),
                     .since = now,
                     .granted = lease.granted_at.has_value(),
                     .size = lease.vram,
                     .asked_more = lease.resize ? std::optional(lease.resize->queued_at) : std::nullopt};
  if (lease.state == core::LeaseState::pausing) live_[lease.id].pausing = lease.parking->method;
  ++of_user_[lease.uid];
}

void Counters::leave(std::uint32_t uid) {
  if (--of_user_[uid] == 0) of_user_.erase(uid);
}

void Counters::observe(const core::Plan& plan, Time now) {
  for (const core::Lease& lease : plan.changed) {
    const auto found = live_.find(lease.id);
    if (found == live_.end()) {
      if (lease.ended()) continue;  // it was counted when it ended; this change only settles it
      enter(lease, now);
      live_[lease.id].granted = false;
    }
    Entry& entry = live_[lease.id];
    charge(entry, now, used_);
    if (lease.uid != entry.uid) {
      leave(entry.uid);
      ++of_user_[lease.uid];
    }
    entry.uid = lease.uid;
    entry.who = {lease.user, lease.tenant};
    entry.since = now;
    entry.reserved = lease.reserved();
    follow_pause(entry, lease, plan);
    follow_waits(entry, lease);
    if (!lease.ended()) continue;
    ++ended_[lease.end_reason];
    leave(entry.uid);
    live_.erase(lease.id);
  }
}

// A larger size that is granted at once also counts as a wait, of length zero, like a first grant.
void Counters::follow_waits(Entry& entry, const core::Lease& lease) {
  if (lease.granted_at && !entry.granted) {
    entry.granted = true;
    count_wait(lease.tenant, *lease.granted_at - lease.created_at);
  } else if (lease.sized && lease.vram > entry.size) {
    count_wait(lease.tenant, lease.sized->until - entry.asked_more.value_or(lease.sized->until));
  }
  entry.size = lease.vram;
  entry.asked_more = lease.resize ? std::optional(lease.resize->queued_at) : std::nullopt;
}

void Counters::count_wait(const std::string& tenant, Duration waited) {
  const double time = std::max(0.0, seconds(waited));
  const auto* bound = std::lower_bound(wait_bounds.begin(), wait_bounds.end(), time);
  ++waits_[static_cast<std::size_t>(bound - wait_bounds.begin())];
  waited_seconds_ += time;
  const bool known = waits_by_tenant_.contains(tenant) || waits_by_tenant_.size() < who_limit;
  Waits& of_tenant = waits_by_tenant_[known ? tenant : "other"];
  ++of_tenant.number;
  of_tenant.seconds += time;
}

// A lease that is paused and resuming in the same plan was paused all the same: its reasons tell.
void Counters::follow_pause(Entry& entry, const core::Lease& lease, const core::Plan& plan) {
  const bool pausing = lease.state == core::LeaseState::pausing;
  if (entry.pausing && (!pausing || lease.parking->method != *entry.pausing)) {
    const bool paused = std::any_of(plan.reasons.begin(), plan.reasons.end(), [&](const core::Reason& reason) {
      return reason.lease == lease.id && reason.kind == core::ReasonKind::paused;
    });
    const auto result = paused ? PauseResult::paused : lease.ended() ? PauseResult::ended : PauseResult::undone;
    ++pauses_[{*entry.pausing, result}];
  }
  entry.pausing = pausing ? std::optional(lease.parking->method) : std::nullopt;
}

std::uint64_t Counters::pauses(Pause what) const {
  const auto found = pauses_.find(what);
  return found == pauses_.end() ? 0 : found->second;
}

std::uint64_t Counters::times_over(const std::string& device) const {
  const auto found = went_over_.find(device);
  return found == went_over_.end() ? 0 : found->second;
}

int Counters::live(std::uint32_t uid) const {
  const auto found = of_user_.find(uid);
  return found == of_user_.end() ? 0 : found->second;
}

void Counters::charge(const Entry& entry, Time until, std::map<Who, double>& totals) const {
  if (entry.reserved <= Bytes{} || until <= entry.since) return;
  const bool known = totals.contains(entry.who) || totals.size() < who_limit;
  totals[known ? entry.who : Who{"other", "other"}] +=
      static_cast<double>(entry.reserved.count) * seconds(until - entry.since);
}

std::map<Counters::Who, double> Counters::byte_seconds(Time now) const {
  std::map<Who, double> totals = used_;
  for (const auto& [id, entry] : live_) charge(entry, now, totals);
  return totals;
}

}  // namespace sublet::engine
