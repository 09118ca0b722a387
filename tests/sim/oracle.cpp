// SPDX-License-Identifier: Apache-2.0
// Checks of every change of a lease, when it is decided.
#include "oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using core::LeaseState;
using namespace std::chrono_literals;

Oracle::Oracle(const Config& config, Verdict& verdict, const World& world)
    : config_(config), verdict_(verdict), world_(world) {}

void Oracle::begin(const engine::Engine* engine, const WatchedStore* store, Time now) {
  if (engine_ == nullptr) last_id_ = 0;  // an id that was told is durable
  engine_ = engine;
  store_ = store;
  std::erase_if(over_, [store](LeaseId id) { return !store->ended(id); });
  readings_.clear(), believed_.clear(), unread_.clear();
  ends_.clear(), leases_.clear();
  unheld_.clear(), forgiven_.clear(), back_by_.clear();
  looked_.reset();
  for (const auto& [id, row] : store->durable()) {
    const Lease& lease = leases_[id] = row.lease;
    if (lease.ended() && lease.had_process) ends_[id] = {*lease.ended_at, lease.vram, lease.devices};
    if (!lease.ended() && lease.owner.kind == core::OwnerKind::connection && !held_.contains(id)) unheld_[id] = now;
    last_id_ = std::max(last_id_, id.number);
  }
  follow_restart();
  stood_still(now);
  checked_.reset();
  last_now_ = now;  // a decision that was not stored may be made again
}

void Oracle::stood_still(Time now) {
  lagged();
  wakes_ = true;
  for (const auto& [id, lease] : leases_) {
    if (lease.ended()) continue;
    if (lease.expires_at && !lease.parking) forgiven_[id] = now + config_.rules.reconnect;
    if (unheld_.contains(id)) back_by_[id] = now + config_.rules.reconnect;
  }
}

// ------------------------------------------------------------------------------------------------ decisions

bool Oracle::may_be_on(const Lease& lease, const std::string& device) {
  return lease.wanted_devices.empty() || std::ranges::count(lease.wanted_devices, device) > 0;
}

bool Oracle::is_on(const Lease& lease, const std::string& device) {
  return std::find(lease.devices.begin(), lease.devices.end(), device) != lease.devices.end();
}

bool Oracle::is_moving(const Lease& lease) {
  return lease.state == LeaseState::pausing || lease.state == LeaseState::resuming;
}

bool Oracle::waits(const Lease& lease) { return lease.queues() || lease.waits_in_place(); }

void Oracle::intended(const store::Batch& batch) {
  for (const std::string_view transition : batch.transitions) verdict_.met.happened(transition);
  if (engine_ == nullptr) return;
  for (const core::Reason& reason : batch.reasons) {
    const std::string code(core::code(reason)), text = core::text_of(reason);
    if (trace_) fmt::print("    {} {}: {}\n", to_string(reason.lease), code, text);
    last_reasons_[reason.lease] = text;
    verdict_.expect(!code.empty() && !text.empty(), "unexplained",
                    [&] { return "an empty reason for " + to_string(reason.lease); });
  }
  std::vector<std::pair<std::optional<Lease>, const Lease*>> granted;  // checked once all victims are counted
  kept_.clear();
  for (const Lease& lease : batch.changed) {
    const auto old = leases_.find(lease.id);
    const std::optional<Lease> before = old == leases_.end() ? std::nullopt : std::optional(old->second);
    const bool held = before && before->reserves();
    const bool grown = held && lease.reserves() && lease.reserved_each() > before->reserved_each() &&
                       (before->state == LeaseState::active || (before->parked() && !lease.parked()));
    const bool was_out = held && (before->parked() || before->state == LeaseState::pausing);
    if (was_out && lease.state == LeaseState::resuming)  // a pause and its resume may be decided in one step
      for (const std::string& device : lease.devices) kept_[device] += before->parking->residue;
    check_change(before ? &*before : nullptr, lease, batch);
    leases_[lease.id] = lease;
    follow_return(before ? &*before : nullptr, lease);
    if (lease.reserves() && (!held || grown)) granted.emplace_back(before, &lease);
  }
  woke_ = std::exchange(wakes_, false);
  for (const auto& [before, lease] : granted) check_promise(*lease, batch.now, woke_), check_tenant_limit(*lease);
  // A reboot ends every process, whatever was read before.
  if (std::ranges::find(batch.transitions, "lost") != batch.transitions.end()) ends_.clear();
  for (const LeaseId id : batch.settled) {
    const auto lease = leases_.find(id);
    verdict_.expect(lease == leases_.end() || lease->second.ended(), "settled-alive",
                    [&] { return to_string(id) + " is settled and has not ended"; });
    leases_.erase(id);
  }
  std::erase_if(leases_, [](const auto& entry) { return entry.second.ended() && !entry.second.had_process; });
}

void Oracle::check_change(const Lease* before, const Lease& lease, const store::Batch& batch) {
  const auto name = [&] { return fmt::format("{} ({})", to_string(lease.id), core::to_string(lease.state)); };
  verdict_.mix(lease.id.number * 64 + static_cast<std::uint64_t>(lease.state));
  if (before == nullptr) {
    verdict_.expect(lease.id.number > last_id_, "id-again", [&] { return name() + " is new, and its number is not"; });
    verdict_.expect(!over_.contains(lease.id), "id-again", [&] { return name() + " has ended before"; });
    last_id_ = std::max(last_id_, lease.id.number);
    ++leases_seen_;
    if (lease.owner.kind == core::OwnerKind::connection && lease.unheld_since) unheld_[lease.id] = batch.now;
  } else {
    verdict_.expect(lease.generation >= before->generation, "generation-shrank", name);
    check_transition(*before, lease), check_deferred_end(*before, lease);
    const bool explained =
        std::ranges::any_of(batch.reasons, [&](const core::Reason& reason) { return reason.lease == lease.id; });
    verdict_.expect(lease.state == before->state || explained, "unexplained",
                    [&] { return name() + " changed its state, and nothing says why"; });
  }
  const std::set<std::string> distinct(lease.devices.begin(), lease.devices.end());
  verdict_.expect(
      !lease.reserves() ||
          (distinct.size() == static_cast<std::size_t>(lease.device_count) && distinct.size() == lease.devices.size()),
      "gang", [&] { return fmt::format("{} has {} of {} devices", name(), distinct.size(), lease.device_count); });
  check_parking(before, lease);
  count(before, lease, batch.now);
  const auto& noted = batch.transitions;  // a renewal may come at the very time of the grant
  const bool renewed = std::find(noted.begin(), noted.end(), "renewed") != noted.end();
  const bool stood = before != nullptr && before->parking && before->expires_at && !renewed && !lease.ended();
  verdict_.expect(!stood || lease.time_left(batch.now) == before->time_left(batch.now), "ttl-runs-while-parked", name);
  if (before != nullptr && (renewed || lease.expires_at != before->expires_at) && !lease.ended())
    forgiven_.erase(lease.id);
  if (lease.ended() && (before == nullptr || !before->ended())) check_end(before, lease, batch);
  if (lease.owner.kind != core::OwnerKind::connection) unheld_.erase(lease.id);
}

// How well it is served, for those who compare two schedulers.
void Oracle::count(const Lease* before, const Lease& lease, Time now) {
  Figures& figures = verdict_.figures;
  const LeaseState was = before == nullptr ? LeaseState::queued : before->state;
  if (was == LeaseState::queued && lease.reserves()) figures.waits.add(now - lease.created_at);
  if (was == LeaseState::queued && lease.ended()) ++figures.never_granted;
  if (was == LeaseState::pausing && lease.state == LeaseState::paused)
    figures.moved += static_cast<std::uint64_t>(std::max(lease.parking->host_bytes, Bytes{}).count);
  if (was == LeaseState::resuming && lease.state == LeaseState::active && before->parking->measured)
    figures.pauses.add(now - before->parking->since);
}

void Oracle::check_transition(const Lease& before, const Lease& lease) {
  using S = LeaseState;
  static const std::map<S, std::set<S>> may{
      {S::queued, {S::queued, S::offered, S::active, S::ended}},
      {S::offered, {S::queued, S::offered, S::active, S::ended}},
      {S::active, {S::active, S::pausing, S::ended}},
      {S::pausing, {S::pausing, S::paused, S::resuming, S::ended}},
      {S::paused, {S::paused, S::resuming, S::ended}},
      {S::resuming, {S::resuming, S::active, S::poisoned, S::ended}},
      {S::poisoned, {S::poisoned, S::ended}},
      {S::ended, {S::ended}},
  };
  // The next method follows once the one before is undone.
  const bool next_method = before.state == S::resuming && lease.state == S::pausing && before.parking &&
                           lease.parking && before.parking->method != lease.parking->method;
  verdict_.expect(next_method || may.at(before.state).contains(lease.state), "transition", [&] {
    return fmt::format("{} went from {} to {}", to_string(lease.id), core::to_string(before.state),
                       core::to_string(lease.state));
  });
  verdict_.expect(!before.ended() || lease.end_reason == before.end_reason, "end-changed",
                  [&] { return to_string(lease.id) + " ended twice, for two reasons"; });
  const bool given = !before.reserves() && lease.reserves();
  verdict_.expect(!given || lease.generation > before.generation, "generation-stood",
                  [&] { return to_string(lease.id) + " was granted, and its generation did not grow"; });
}

void Oracle::check_parking(const Lease* before, const Lease& lease) {
  const auto name = [&] { return fmt::format("{} ({})", to_string(lease.id), core::to_string(lease.state)); };
  verdict_.expect(lease.parking.has_value() == (is_moving(lease) || lease.parked()), "parking-state", name);
  const LeaseState was = before == nullptr ? LeaseState::active : before->state;
  if (lease.state == LeaseState::pausing && was != LeaseState::pausing && lease.parking) {
    if (was == LeaseState::active) pause_began_[lease.id] = world_.awake();
    check_method(before, lease);
    check_ledger(lease);
    // A method that is tried after another failed keeps what its owner requested, also for an idle lease.
    const bool idle = lease.parking->cause.kind == core::PauseCauseKind::idle;
    if (lease.parking->resume_requested && !idle) check_displaced(lease);
    check_guarantee(lease);
  }
  const Bytes entered = before != nullptr && before->parking ? before->parking->host_bytes : Bytes{};
  if (lease.parking && !lease.parking->measured && lease.parking->host_bytes > entered) check_share(lease);
  if (lease.state == LeaseState::paused && before != nullptr && was == LeaseState::pausing) {
    check_yielded(lease);
    ++pauses_seen_;
  }
  if (lease.state == LeaseState::active && before != nullptr && before->parking) {
    verdict_.expect(!world_.waits_for_the_driver(lease.id), "never-restored",
                    [&] { return name() + " counts as running, and its program is still locked or parked"; });
    verdict_.expect(!world_.rests(lease.id), "never-told-to-go-on",
                    [&] { return name() + " counts as running, and its program waits for a resume order"; });
  }
}

// A program that is to end as soon as it runs again is told so then, or when its restore fails for good.
void Oracle::check_deferred_end(const Lease& before, const Lease& lease) {
  const bool deferred = before.parking && before.parking->then_stop && !before.stop_requested;
  const bool still = lease.parking && lease.parking->then_stop && lease.state != LeaseState::poisoned;
  verdict_.expect(!deferred || still || lease.stop_requested || lease.ended(), "end-forgotten", [&] {
    return fmt::format("{} was to end as soon as it runs again, and is {}", to_string(lease.id),
                       core::to_string(lease.state));
  });
}

// ------------------------------------------------------------------------------------------------ clients

bool Oracle::wanted_back(LeaseId lease, bool back) {
  const bool before = wanted_back_.contains(lease);
  if (back) wanted_back_.insert(lease);
  else wanted_back_.erase(lease);
  return before;
}

void Oracle::told(LeaseId lease, std::uint64_t generation) {
  const Lease* durable = store_->find(lease);
  verdict_.expect(store_->ended(lease) || (durable != nullptr && durable->generation >= generation),
                  "told-before-durable", [&] {
                    return fmt::format("a client was told of {} at generation {}, which is not durable",
                                       to_string(lease), generation);
                  });
}

void Oracle::held(LeaseId lease, bool held, Time now) {
  if (trace_) fmt::print("    {} is {}\n", to_string(lease), held ? "held" : "let go");
  held ? void(held_.insert(lease)) : void(held_.erase(lease));
  const auto found = leases_.find(lease);
  if (found == leases_.end() || found->second.owner.kind != core::OwnerKind::connection) return;
  if (held) unheld_.erase(lease), back_by_.erase(lease);
  else unheld_.emplace(lease, now);
}

}  // namespace sublet::sim
