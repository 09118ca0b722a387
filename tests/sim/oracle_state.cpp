// SPDX-License-Identifier: Apache-2.0
// What is checked after every step: the engine's state against itself, its indices against its leases, and what it
// should have done by now; and of what ends, why.
#include "oracle.h"

#include "driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace sublet::sim {

using core::LeaseState;
using namespace std::chrono_literals;

void Oracle::after_step(bool overdue) {
  if (engine_ == nullptr || verdict_.failed()) return;
  if (!engine_->store_problem().empty()) return forget_slices();
  const core::State& state = engine_->state();
  const Time now = engine_->now();
  verdict_.expect(now >= last_now_, "time-went-back", [] { return std::string("within one life"); });
  if (now - last_now_ >= napped_) napped_ = {};
  last_now_ = now, awake_ = world_.awake();
  verdict_.mix(state.last_id() * 1000 + state.leases().size() * 10 + state.queue().size());
  // In a step of the world in which the core took none, all this is as it was.
  if (std::exchange(checked_, state.steps()) != state.steps()) {
    check_sums(state, now);
    check_queue(state, now);
    check_served(state, now);
    check_blame(state);
    follow_driver(state, now);
    follow_contests(state, now);
    check_announced(state, now);
    check_entered(state);
    check_progress(state, now);
    check_nothing_automatic(state);
  }
  if (was_told(state)) follow_deserted(), check_swapped(state);
  check_plans(state, now);
  check_unleased_named(state, now);
  check_under_way(state, now);
  note_promised(state);
  if (!overdue) check_due(now), check_deserted(state), check_stuck(state, now), check_slices_due(state, now);
  check_durable();
}

void Oracle::slept(Duration asleep) {
  for (auto& [id, by] : returns_by_) by = by + asleep;
  forget_slices();
  napped_ += asleep;
  heard_from_ = last_now_ + asleep;
  for (auto& [id, at] : said_at_) at = at + asleep;
}

// By when the driver should have parked whom it was asked to.
void Oracle::follow_driver(const core::State& state, Time now) {
  constexpr Duration late = 15s;  // more than it is allowed beyond what such a pause took in the worst case
  for (const LeaseId id : state.away()) {
    const Lease& lease = *state.find(id);
    const bool yields = lease.state == LeaseState::pausing && lease.parking->method == core::PauseMethod::driver;
    const auto moving = yields ? state.moving(id) : std::nullopt;
    if (!moving || moving->move != core::Move::pause) {
      returns_by_.erase(id);
    } else if (!returns_by_.contains(id)) {
      const Bytes bytes = std::max(moving->bytes, lease.parking->host_bytes);
      const auto takes =
          state.costs().predict(lease.whose(), lease.devices, lease.parking->method, core::Move::pause, bytes);
      returns_by_[id] = now + takes.longest + late;
    }
  }
  std::erase_if(returns_by_, [&state](const auto& entry) { return !state.away().contains(entry.first); });
}

// Who waits is not kept waiting by a driver that does not return.
void Oracle::check_stuck(const core::State& state, Time now) {
  if (returns_by_.empty()) return;
  for (const core::PreemptionPlan& plan : state.plans()) {
    if (!plan.victims.empty()) continue;
    bool any = false, in_time = false;
    for (const std::string& uuid : plan.devices) {
      for (const LeaseId id : state.devices().at(uuid).leases) {
        const auto by = returns_by_.find(id);
        const bool yields = state.find(id)->state == LeaseState::pausing;
        any |= yields;
        in_time |= yields && (by == returns_by_.end() || now <= by->second);
        in_time |= state.find(id)->ended();                      // what it used comes free in a moment
        in_time |= state.standing(id).next && !state.stuck(id);  // asked by its next method in a moment
      }
    }
    verdict_.expect(!any || in_time, "held-up", [&plan] {
      return to_string(plan.preemptor) + " waits for nobody but those whose driver does not return";
    });
  }
}

// Of a pause that was never begun, or came to its good end, nobody is the worse for it.
void Oracle::check_blame(const core::State& state) {
  std::erase_if(to_blame_, [&](const auto& entry) {
    const auto& [id, times] = entry;
    const Lease* lease = state.find(id);
    const bool runs = lease != nullptr && lease->state == LeaseState::active;
    verdict_.expect(!runs || state.standing(id).failures >= times, "not-blamed", [&, &id = id, &times = times] {
      return fmt::format("{} failed to yield, and is said to have failed {} times instead of {}", to_string(id),
                         state.standing(id).failures, times);
    });
    return runs || lease == nullptr || lease->ended();
  });
  for (const auto& [id, lease] : state.leases()) {
    const int failures = state.standing(id).failures;
    if (failures == 0) continue;
    const auto undone = undone_.find(id);
    verdict_.expect(undone != undone_.end() && failures <= undone->second, "blamed", [&, &id = id] {
      return fmt::format("{} is said to have failed {} times", to_string(id), failures);
    });
  }
}

void Oracle::check_sums(const core::State& state, Time now) {
  Bytes entries, unsettled;
  int live = 0;
  std::size_t booked = 0;  // by leases that have room, once for each of their devices
  for (const auto& [id, lease] : state.leases()) {
    live += !lease.ended();
    booked += lease.reserves() ? lease.devices.size() : 0;
    if (lease.parking && !lease.ended()) {
      entries += lease.parking->host_bytes;
      if (!lease.parking->measured) unsettled += lease.parking->host_bytes;
    }
    const auto kept = leases_.find(id);
    verdict_.expect(kept != leases_.end() && kept->second.state == lease.state &&
                        kept->second.generation == lease.generation && kept->second.devices == lease.devices &&
                        kept->second.vram == lease.vram && kept->second.parking == lease.parking,
                    "not-stored", [&, &id = id] { return to_string(id) + " is not as it was stored"; });
    const bool waits = lease.state == LeaseState::queued || lease.waits_in_place();
    verdict_.expect(state.queue().contains(id) == waits, "queue-index", [&, &id = id] {
      return to_string(id) + (waits ? " waits in no queue" : " waits, and should not");
    });
  }
  verdict_.expect(state.ledger_entries() == entries && state.ledger_unsettled() == unsettled, "ledger-sum", [&] {
    return fmt::format("{} and {} unsettled, instead of {} and {}", format_size(state.ledger_entries()),
                       format_size(state.ledger_unsettled()), format_size(entries), format_size(unsettled));
  });
  verdict_.expect(engine_->meter().live(1000) + engine_->meter().live(1001) == live, "meter", [&] {
    return fmt::format("{} leases are counted, {} live", engine_->meter().live(1000) + engine_->meter().live(1001),
                       live);
  });
  struct Sum {
    Bytes charged;
    std::size_t here = 0;
  };
  for (const auto& [uuid, device] : state.devices()) {
    Sum sum;
    for (const auto& [id, lease] : state.leases()) {
      if (!is_on(lease, uuid)) continue;
      if (!lease.reserves() && !(lease.ended() && state.charge(id, uuid).settling)) continue;
      const Bytes charged = state.charged(lease, uuid);
      ++sum.here;
      sum.charged += charged;
      booked -= lease.reserves();
      verdict_.expect(device.leases.contains(id), "device-index",
                      [&, &id = id, &uuid = uuid] { return to_string(id) + " is not booked on " + uuid; });
      verdict_.expect(!lease.reserves() || charged >= lease.reserved_each(), "charged-too-little",
                      [&, &id = id] { return to_string(id); });
    }
    verdict_.expect(device.leases.size() == sum.here && device.charged == sum.charged, "device-sum", [&, &uuid = uuid] {
      return fmt::format("{} charges {} for {} leases, instead of {} for {}", uuid, format_size(device.charged),
                         device.leases.size(), format_size(sum.charged), sum.here);
    });
    const auto found = readings_.find(uuid);
    if (found == readings_.end() || !state.known(device, config_.rules, now)) continue;
    const Reading& reading = found->second;
    const Bytes most = reading.total - reading.driver_reserved - config_.rules.headroom - claimed(uuid, reading);
    verdict_.expect(state.effective_free(device, config_.rules, now) <= most, "free-from-nowhere", [&, &uuid = uuid] {
      return fmt::format("{} has {} free by its reading and its leases, and {} are offered", uuid, format_size(most),
                         format_size(state.effective_free(device, config_.rules, now)));
    });
  }
  verdict_.expect(booked == 0, "device-index", [] { return std::string("somebody is on a device that there is not"); });
}

void Oracle::check_queue(const core::State& state, Time now) {
  if (state.queue().empty()) return;
  const std::vector<LeaseId> order = state.queue().in_order();
  verdict_.expect(order.size() == state.queue().size(), "queue-order", [] { return std::string("not all are in it"); });
  // Counted in the time that a point of priority is worth, a whole number of nanoseconds: exact, as the order is.
  const double aging = config_.rules.aging_per_minute;
  const auto aged = [&](const Lease& lease) {
    if (!(aging > 0)) return std::pair<std::int64_t, std::int64_t>(lease.priority, -lease.waits_since().ns);
    const std::int64_t point = std::llround(60e9 / aging);
    return std::pair<std::int64_t, std::int64_t>(lease.priority * point + (now - lease.waits_since()).count(), 0);
  };
  const Lease* before = nullptr;
  for (const LeaseId id : order) {
    const Lease* lease = state.find(id);
    if (lease != nullptr && before != nullptr) {
      const auto first = aged(*before), second = aged(*lease);
      const bool right = before->tier != lease->tier ? before->tier > lease->tier
                         : first != second           ? first > second
                                                     : before->id < lease->id;
      verdict_.expect(right, "queue-order", [&] {
        return fmt::format("{} stands before {}, and should not", to_string(before->id), to_string(lease->id));
      });
    }
    before = lease;
  }
}

// Nobody waits who fits, unless room is held, or being made, for somebody else.
void Oracle::check_served(const core::State& state, Time now) {
  if (state.queue().empty() || !state.nominations().empty()) return;
  for (const auto& [id, lease] : state.leases()) {
    if (!state.queue().contains(id)) continue;
    const auto fits = [&, &waiter = lease](const std::string& uuid, const core::Device& device) {
      if (!state.known(device, config_.rules, now)) return false;
      const core::PreemptionPlan* plan = state.plan_on(uuid);  // is kept for whom it is made, but from higher tiers
      if (plan != nullptr && plan->preemptor != waiter.id && waiter.tier <= plan->tier) return false;
      const Bytes held = waiter.waits_in_place() ? state.charged(waiter, uuid) : Bytes{};
      const Bytes whole =
          waiter.parking ? std::max(waiter.vram, state.charge(waiter.id, uuid).needed) : waiter.wanted_vram();
      const Bytes needed = waiter.waits_in_place() ? whole - held : waiter.least();
      return state.effective_free(device, config_.rules, now) >= std::max(needed, Bytes{});
    };
    int fitting = 0;
    for (const auto& [uuid, device] : state.devices()) {
      const bool may = lease.waits_in_place()
                           ? std::find(lease.devices.begin(), lease.devices.end(), uuid) != lease.devices.end()
                           : lease.wanted_device.empty() || lease.wanted_device == uuid;
      fitting += may && fits(uuid, device);
    }
    const int needed = lease.waits_in_place() ? static_cast<int>(lease.devices.size()) : lease.device_count;
    verdict_.expect(fitting < needed, "waits-although-it-fits", [&, &id = id, &waiter = lease] {
      return fmt::format("{} ({}) waits for {} on {} devices", to_string(id), core::to_string(waiter.state),
                         format_size(waiter.wanted_vram()), needed);
    });
  }
}

// Time alone has done what it should have.
void Oracle::check_due(Time now) {
  constexpr Duration late = 2ms;  // an alarm may ring a little after its time
  // Things are done in the order of their times: what is due now is still to come.
  for (const auto& [id, lease] : engine_->state().leases()) {
    if (lease.ended()) continue;
    const auto passed = [&](const std::optional<Time>& at) { return at && *at + late < now; };
    verdict_.expect(lease.state != LeaseState::offered || !passed(lease.offer_ends_at), "offer-overdue",
                    [&, &id = id] { return to_string(id); });
    verdict_.expect(lease.state != LeaseState::active || !passed(lease.expires_at), "expiry-overdue",
                    [&, &id = id] { return to_string(id); });
    verdict_.expect(lease.state != LeaseState::active || !lease.ttl || lease.expires_at, "time-forgotten",
                    [&, &id = id] { return to_string(id) + " has a time limit, and its time has no end"; });
    if (lease.state != LeaseState::pausing && lease.state != LeaseState::resuming) {
      verdict_.expect(lease.state != LeaseState::offered || lease.offer_ends_at.has_value(), "offer-without-end",
                      [&, &id = id] { return to_string(id); });
    } else {
      verdict_.expect(!lease.expires_at, "ttl-runs-while-parked", [&, &id = id] { return to_string(id); });
    }
  }
}

void Oracle::check_end(const Lease* before, const Lease& lease, const store::Batch& batch) {
  const Time now = batch.now;
  over_.insert(lease.id);
  const auto unheld = unheld_.find(lease.id);
  const auto says = [&](const char* what) {
    return [&, what] {
      return fmt::format("{} ended ({}): {}", to_string(lease.id), core::to_string(lease.end_reason), what);
    };
  };
  using R = core::EndReason;
  verdict_.expect(lease.end_reason != R::none, "end-without-reason", says("no reason"));
  const bool orphan =
      lease.end_reason == R::expired && before != nullptr && before->parking && before->state != LeaseState::pausing;
  if (orphan) check_orphaned(*before, lease);
  verdict_.expect(
      lease.end_reason != R::expired || orphan ||
          (before != nullptr && before->expires_at && *before->expires_at <= now &&
           before->state == LeaseState::active && (!forgiven_.contains(lease.id) || forgiven_.at(lease.id) <= now)),
      "expired-early", says("its time was not over"));
  if (lease.end_reason == R::failed && before != nullptr && before->parking) check_left_parked(*before, lease);
  const bool displaced = lease.end_reason == R::revoked && !revoked_.contains(lease.id);
  const bool resumed = std::ranges::any_of(batch.reasons, [&](const core::Reason& reason) {
    return reason.lease == lease.id && reason.kind == core::ReasonKind::resumed;  // and ended at once
  });
  // Told to go on, and its program waits to be told all the same.
  const auto told = told_since_.find(lease.id);
  const bool unresponsive = before != nullptr && before->state == LeaseState::resuming && before->parking->told &&
                            world_.rests(lease.id) && told != told_since_.end() &&
                            now - told->second >= config_.rules.spot_unused_after;
  const bool whole = before == nullptr || !before->parking || resumed || unresponsive;
  verdict_.expect(!displaced || (lease.tier == core::Tier::spot && whole), "ended-without-word",
                  says("nobody asked for that, and it is not of the tier spot"));
  using P = core::Pausable;
  const bool by_itself = lease.cooperation && (lease.pausable == P::automatic || lease.pausable == P::cooperative);
  const bool by_driver = lease.owner.kind == core::OwnerKind::process &&
                         !(lease.unfit && world_.driver().gave_up(lease.id)) &&
                         (lease.pausable == P::automatic || lease.pausable == P::driver);
  const auto never_fits = [&] {  // not even into host memory that holds nothing else
    const Bytes each = std::max(lease.vram, before == nullptr ? Bytes{} : before->vram);  // it may have grown just now
    const bool shared = std::ranges::any_of(leases_, [&](const auto& of) { return of.second.uid != lease.uid; });
    const auto limit = static_cast<double>(config_.rules.ledger_limit.count);
    const Bytes share{static_cast<std::int64_t>(shared ? limit * config_.rules.ledger_user_share : limit)};
    return static_cast<std::int64_t>(lease.devices.size()) * each >
           std::min(share, config_.host_memory - config_.rules.ledger_reserve);
  };
  // Nothing was seen of it on a card that the driver could park, and it had its time to take something.
  const auto used = used_at_.find(lease.id);
  const Time since = std::max({lease.granted_at.value_or(now), lease.resumed_at.value_or(Time{}),
                               used == used_at_.end() ? Time{} : used->second});
  const bool idles = !by_itself && now - since >= config_.rules.spot_unused_after &&
                     std::ranges::all_of(lease.devices, [&](const std::string& device) {
                       return seen_to_use(lease.id, device).value_or(Bytes{}) == Bytes{};
                     });
  verdict_.expect(!displaced || !((by_itself && !swaps(lease.id)) || (by_driver && !driver_barred(lease.id))) ||
                      never_fits() || idles || unresponsive,
                  "pausable-and-ended", says("it could have been paused"));
  verdict_.expect(!displaced || never_fits() || swaps(lease.id) || !in_its_moment(lease, now), "ended-in-its-moment",
                  says("it could still have said how it yields"));
  const bool by_connection =
      lease.owner.kind == core::OwnerKind::connection && !lease.exit_status && (lease.end_reason == R::owner_gone);
  verdict_.expect(!by_connection || (unheld != unheld_.end() && now >= unheld->second + config_.rules.linger &&
                                     (!back_by_.contains(lease.id) || now >= back_by_.at(lease.id))),
                  "gone-early", says("somebody held it, or could still come back"));
  unheld_.erase(lease.id);
  if (!lease.had_process || before == nullptr || !before->reserves()) return;
  ends_[lease.id] = {now, before->parked() ? Bytes{} : lease.vram, lease.devices};
}

// What is not durable yet is known to be so, to whoever asks when an answer may leave.
void Oracle::check_durable() {
  for (const WatchedStore::Pending& batch : store_->pending()) {
    if (batch.sequence > engine_->intended()) continue;  // of a life that is over
    for (const Lease& lease : batch.changed) {
      verdict_.expect(engine_->intended_of(lease.id) >= batch.sequence, "durable-by-mistake", [&] {
        return fmt::format("{} changed in batch {}, which is not durable", to_string(lease.id), batch.sequence);
      });
    }
  }
  verdict_.expect(engine_->log().last() <= store_->last_event(), "event-before-durable", [&] {
    return fmt::format("event {} is told, {} is durable", engine_->log().last(), store_->last_event());
  });
}

std::string Oracle::why_parked() const {
  std::string text;
  for (const auto& [id, lease] : leases_) {
    if (!lease.parking || lease.ended()) continue;
    const auto words = last_words_.find(id);
    text += fmt::format("{} is {}: {}; ", to_string(id), core::to_string(lease.state),
                        words == last_words_.end() ? "" : words->second);
  }
  return text;
}

void Oracle::at_rest() {
  if (engine_ == nullptr || verdict_.failed()) return;
  const core::State& state = engine_->state();
  for (const auto& [id, lease] : state.leases()) {
    verdict_.fail("left-over", fmt::format("{} is {} for ever{}", to_string(id), core::to_string(lease.state),
                                           lease.ended() ? ", and its bytes are never measured gone" : ""));
  }
  verdict_.expect(state.queue().empty(), "left-over", [] { return std::string("somebody waits for ever"); });
}

}  // namespace sublet::sim
