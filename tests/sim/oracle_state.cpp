// SPDX-License-Identifier: Apache-2.0
// Checks after every step, checks of each end, and checks at the end of the run.
#include "oracle.h"

#include "lease/describe.h"

#include "core/testing/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sublet::sim {

using core::LeaseState;
using namespace std::chrono_literals;

namespace {

constexpr Duration served_within = 8s;  // a reading, and a moment
constexpr int commits_before = 5;       // of earlier decisions, and of the decision itself

}  // namespace

void Oracle::after_step(bool overdue) {
  if (engine_ == nullptr || verdict_.failed()) return;
  if (!engine_->store_problem().empty()) return lagged();
  const core::State& state = engine_->state();
  const Time now = engine_->now();
  verdict_.expect(now >= last_now_, "time-went-back", [] { return std::string("within one life"); });
  if (now - last_now_ >= napped_) napped_ = {};
  last_now_ = now;
  verdict_.mix(state.leases.last_id * 1000 + state.leases.by_id.size() * 10 + state.queue.size());
  // Most steps of the simulation take no step of the core.
  if (std::exchange(checked_, state.steps) != state.steps) check_state(state, now), check_served(state, now);
  if (takes_new_reading(state)) check_swapped(state);
  check_plans_move(state, now);
  if (!overdue) check_due(now);
  check_durable();
}

// The numbers of a cause are rounded in the store.
bool Oracle::is_same(const Lease& stored, const Lease& lease) {
  return stored.parking == lease.parking || core::describe(stored) == core::describe(lease);
}

// The core's own sums and indices are checked here. The oracle adds what only the store and the counters know.
void Oracle::check_state(const core::State& state, Time now) {
  for (const std::string& violation : core::testing::validate(state, config_.rules, now))
    verdict_.expect(false, "invalid-state", [&] { return violation; });
  int live = 0;
  for (const auto& [id, lease] : state.leases.by_id) {
    live += !lease.ended();
    const auto kept = leases_.find(id);
    verdict_.expect(
        kept != leases_.end() && kept->second.state == lease.state && kept->second.generation == lease.generation &&
            kept->second.devices == lease.devices && kept->second.vram == lease.vram && is_same(kept->second, lease),
        "not-stored", [&, &id = id, &lease = lease] {
          return fmt::format("{} is not as it was stored: '{}' instead of '{}'", to_string(id), core::describe(lease),
                             kept == leases_.end() ? "nothing" : core::describe(kept->second));
        });
  }
  const int counted = engine_->counters().live(1000) + engine_->counters().live(1001);
  verdict_.expect(counted == live, "counters", [&] { return fmt::format("{} leases count, {} live", counted, live); });
}

// The engine goes by the reading of this step, unless the machine slept meanwhile.
bool Oracle::takes_new_reading(const core::State& state) {
  const std::optional<Time> began = std::exchange(looked_, std::nullopt);
  return began &&
         std::ranges::any_of(state.devices.by_uuid, [&](const auto& device) { return device.second.read_at == began; });
}

// ------------------------------------------------------------------------------------------------ progress

// No lease waits for longer than a moment that fits by the engine's own account, unless memory is reserved or being
// freed for another lease.
void Oracle::check_served(const core::State& state, Time now) {
  std::map<LeaseId, Time> fits;
  if (state.queue.size() > 0 && state.nominations.empty()) {
    for (const auto& [id, lease] : state.leases.by_id) {
      if (!state.queue.contains(id) || state.queue.key(id)->limited) continue;
      std::ptrdiff_t fitting = 0;
      for (const auto& [uuid, device] : state.devices.by_uuid) {
        const bool in_place = lease.waits_in_place();
        const bool may = in_place ? is_on(lease, uuid) : may_be_on(lease, uuid);
        const core::PreemptionPlan* plan = core::plan_on(state, uuid);  // frees memory for its own preemptor
        const bool grants = core::may_grant_on(state, device, config_.rules, now);
        if (!may || !grants || (plan != nullptr && plan->preemptor() != id)) continue;
        const Bytes least = in_place ? core::need_on(state, lease, uuid) : lease.least();
        fitting += core::free_on(state, device, config_.rules, now) >= least;
      }
      const auto needed = lease.waits_in_place() ? std::ssize(lease.devices) : std::ptrdiff_t{lease.device_count};
      if (fitting < needed) continue;
      const auto before = fits_since_.find(id);
      const Time since = fits[id] = before == fits_since_.end() ? now + napped_ : before->second;
      verdict_.expect(now - since <= served_within, "waits-although-it-fits", [&, &id = id, &waiter = lease] {
        std::string plans;
        for (const core::PreemptionPlan& plan : state.preemption.plans)
          plans += fmt::format("; plan {} for {} of {} on {}", plan.id, to_string(plan.preemptor()),
                               plan.beneficiaries.size(), plan.devices.front());
        return fmt::format("{} ({}) waits for {} on {} devices, and fits for {}{}", to_string(id),
                           core::to_string(waiter.state), format_size(waiter.wanted_vram()), needed,
                           format_duration(now - since), plans);
      });
    }
  }
  fits_since_ = std::move(fits);
}

// A lease there pauses, resumes, ends, or is about to be granted.
bool Oracle::somebody_moves(const core::State& state, const std::string& device) const {
  return std::ranges::any_of(state.devices.by_uuid.at(device).leases, [&](LeaseId id) {
    const Lease& lease = *core::find(state, id);
    if (core::is_stuck(state, id)) return false;
    return is_moving(lease) || lease.ended() || lease.state == LeaseState::offered || lease.stop_requested;
  });
}

// In each preemption plan a victim moves, or the plan changes or ends.
void Oracle::check_plans_move(const core::State& state, Time now) {
  if (standing_.empty() && state.preemption.plans.empty()) return;
  std::map<LeaseId, Standing> standing;
  for (const core::PreemptionPlan& plan : state.preemption.plans) {
    std::vector<std::string> devices = plan.devices;
    std::vector<LeaseId> victims;
    for (const core::Victim& victim : plan.victims) {
      victims.push_back(victim.lease);
      if (const auto its = leases_.find(victim.lease); its != leases_.end())
        devices.insert(devices.end(), its->second.devices.begin(), its->second.devices.end());
    }
    const bool moves = std::ranges::any_of(devices, [&](const std::string& device) {
      return !state.devices.by_uuid.contains(device) || known(device, now) == nullptr || somebody_moves(state, device);
    });
    if (moves) continue;
    const auto before = standing_.find(plan.preemptor());
    const bool same = before != standing_.end() && before->second.victims == victims;
    const Standing& its = standing[plan.preemptor()] = {same ? before->second.since : now + napped_, victims};
    // A plan may wait for a victim that it may ask later.
    const bool later = victims.empty() || std::ranges::any_of(victims, [&](LeaseId id) {
      return core::standing_of(state, id).ineligible_until > now - served_within;
    });
    const Duration longest = (later ? core::longest_stall : served_within) + served_within;
    verdict_.expect(now - its.since <= longest + commits_before * config_.longest_commit(), "nobody-moves", [&] {
      std::string who;
      for (const LeaseId id : victims)
        if (const Lease* lease = core::find(state, id))
          who += fmt::format(" {} ({})", to_string(id), core::to_string(lease->state));
      return fmt::format("the plan for {} has not moved for {}; victims:{}", to_string(plan.preemptor()),
                         format_duration(now - its.since), who);
    });
  }
  standing_ = std::move(standing);
}

// No time limit was missed.
void Oracle::check_due(Time now) {
  constexpr Duration late = 2ms;  // an alarm may ring a little after its time
  for (const auto& [id, lease] : engine_->state().leases.by_id) {
    if (lease.ended()) continue;
    const auto passed = [&](const std::optional<Time>& at) { return at && *at + late < now; };
    verdict_.expect(lease.state != LeaseState::offered || !passed(lease.offer_ends_at), "offer-overdue",
                    [&, &id = id] { return to_string(id); });
    verdict_.expect(lease.state != LeaseState::active || !passed(lease.expires_at), "expiry-overdue",
                    [&, &id = id] { return to_string(id); });
    verdict_.expect(lease.state != LeaseState::active || !lease.ttl || lease.expires_at, "time-forgotten",
                    [&, &id = id] { return to_string(id) + " has a time limit, and its time has no end"; });
    verdict_.expect(lease.state != LeaseState::offered || lease.offer_ends_at.has_value(), "offer-without-end",
                    [&, &id = id] { return to_string(id); });
  }
}

// The engine knows of each change that is not durable yet, when it is asked whether an answer may leave.
void Oracle::check_durable() {
  for (const WatchedStore::Pending& batch : store_->pending()) {
    if (batch.sequence > engine_->intended()) continue;  // of a life that is over
    for (const Lease& lease : batch.changed) {
      verdict_.expect(engine_->commits().last_of(lease.id) >= batch.sequence, "durable-by-mistake", [&] {
        return fmt::format("{} changed in batch {}, which is not durable", to_string(lease.id), batch.sequence);
      });
    }
  }
  verdict_.expect(engine_->commits().log().last() <= store_->last_event(), "event-before-durable", [&] {
    return fmt::format("event {} is told, {} is durable", engine_->commits().log().last(), store_->last_event());
  });
}

// ------------------------------------------------------------------------------------------------ ends

void Oracle::check_end(const Lease* before, const Lease& lease, const store::Batch& batch) {
  using R = core::EndReason;
  const Time now = batch.now;
  over_.insert(lease.id);
  if (config_.capabilities) return;
  const auto says = [&](const char* what) {
    return [&, what] {
      return fmt::format("{} ended ({}): {}", to_string(lease.id), core::to_string(lease.end_reason), what);
    };
  };
  const R why = lease.end_reason;
  verdict_.expect(why != R::none, "end-without-reason", says("no reason"));
  const auto has = [&](core::ReasonKind kind) {
    return std::ranges::any_of(batch.reasons, [&](const core::Reason& reason) {
      return reason.lease == lease.id && reason.kind == kind;  // before its end, in the same step
    });
  };
  const bool resumed = has(core::ReasonKind::resumed);
  const bool paused =
      before != nullptr && before->parking &&
      (before->state != LeaseState::pausing || has(core::ReasonKind::paused) || has(core::ReasonKind::orphaned));
  if (why == R::expired && paused && resumed) {
    verdict_.expect(before->time_left(now) <= Duration{}, "expired-early", says("it had time left when it was paused"));
  } else if (why == R::expired && paused) {
    const auto since = orphaned_since(*before);
    verdict_.expect(since && world_.awake() - *since >= config_.rules.orphan_after, "orphaned-early",
                    says(since ? "its program ended a moment ago" : "something of its program lives"));
  } else if (why == R::expired) {
    const bool over = before != nullptr && before->expires_at && *before->expires_at <= now &&
                      before->state == LeaseState::active &&
                      (!forgiven_.contains(lease.id) || forgiven_.at(lease.id) <= now);
    verdict_.expect(over, "expired-early", says("its time was not over"));
  }
  if (why == R::failed && before != nullptr && before->parking) check_left_parked(*before, lease);
  const bool displaced = why == R::revoked && !revoked_.contains(lease.id);
  const bool unresponsive =  // got its resume order, and does not answer
      before != nullptr && before->state == LeaseState::resuming && before->parking->told && world_.rests(lease.id);
  const bool runs = before == nullptr || !before->parking || resumed || unresponsive;
  verdict_.expect(!displaced || (lease.tier == core::Tier::spot && runs), "ended-without-word",
                  says("nobody asked for that, and it is not a spot lease whose program runs"));
  const auto unheld = unheld_.find(lease.id);
  const bool by_connection =
      lease.owner.kind == core::OwnerKind::connection && !lease.exit_status && why == R::owner_gone;
  verdict_.expect(!by_connection || (unheld != unheld_.end() && now >= unheld->second + config_.rules.linger &&
                                     (!back_by_.contains(lease.id) || now >= back_by_.at(lease.id))),
                  "gone-early", says("a connection held it, or could still come back"));
  unheld_.erase(lease.id);
  if (!lease.had_process || before == nullptr || !before->reserves()) return;
  ends_[lease.id] = {now, before->parked() ? Bytes{} : lease.vram, lease.devices};
}

// The time since which no process of a paused token lease lives, on CLOCK_MONOTONIC.
std::optional<Time> Oracle::orphaned_since(const Lease& lease) const {
  const auto began = pause_began_.find(lease.id);
  if (lease.owner.kind != core::OwnerKind::token || began == pause_began_.end() || world_.inhabited(lease.id))
    return std::nullopt;
  const auto program = world_.programs().find(lease.id);
  return program == world_.programs().end() ? began->second : std::max(began->second, program->second.ended_at);
}

std::string Oracle::why_parked() const {
  std::string text;
  for (const auto& [id, lease] : leases_) {
    if (!lease.parking || lease.ended()) continue;
    const auto reason = last_reasons_.find(id);
    text += fmt::format("{} is {}: {}; ", to_string(id), core::to_string(lease.state),
                        reason == last_reasons_.end() ? "" : reason->second);
  }
  return text;
}

void Oracle::at_rest() {
  if (engine_ == nullptr || verdict_.failed()) return;
  const core::State& state = engine_->state();
  for (const auto& [id, lease] : state.leases.by_id) {
    verdict_.fail("left-over", fmt::format("{} is {} for ever{}", to_string(id), core::to_string(lease.state),
                                           lease.ended() ? ", and its bytes are never measured gone" : ""));
  }
  verdict_.expect(state.queue.size() == 0, "left-over", [] { return std::string("a lease waits for ever"); });
}

}  // namespace sublet::sim
