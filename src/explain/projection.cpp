// SPDX-License-Identifier: Apache-2.0
#include "explain/projection.h"

#include "core/step.h"
#include "state/pauses.h"
#include "state/reclaim.h"

#include <algorithm>
#include <utility>

namespace sublet::explain {

using namespace core;

namespace {

// A projection plays so many events: what comes later would be a guess, and would cost too much. The daemon does
// nothing else meanwhile.
constexpr std::size_t most_events = 200;
constexpr Duration horizon = std::chrono::hours(24 * 60);
// A reading stays true in the copy.
constexpr Duration ever = std::chrono::hours(24 * 3650);
// For so many of the first waiters it counts when memory is reserved for them; each costs an event.
constexpr std::size_t aged = 32;
// An estimate names this many of the leases that free its memory, the last ones.
constexpr std::size_t told = 2;

// No real process has such a pid: the kernel's largest is 4,194,304.
ProcessRef virtual_process(LeaseId id) { return {static_cast<std::int32_t>((1 << 30) + id.number % (1 << 30)), 1}; }

}  // namespace

Projection::Projection(State copy, const Rules& rules, Time now)
    : state_(std::move(copy)), rules_(rules), begun_(now), now_(now), wake_at_(now) {
  // Unknown devices stay unknown, and leases with a lasting obstacle are not counted on.
  for (auto& [uuid, device] : state_.devices.by_uuid) {
    if (!is_known(state_, device, rules_, now) && device.problem.empty()) device.problem = "not read";
    mark_moved(state_, device);
  }
  rules_.max_age = ever;
  for (auto& [id, runtime] : state_.leases.runtime)
    if (runtime.obstacle) runtime.obstacle->until = Time::never();
  if (state_.pauses.obstacle) state_.pauses.obstacle->until = Time::never();
  for (auto& [id, lease] : state_.leases.by_id) {
    if (lease.owner.kind == OwnerKind::token && !lease.ended()) {  // its owner renews it
      lease.ttl.reset();
      lease.expires_at.reset();
      schedule(state_, lease, rules_);
    }
    if (state_.queue.contains(id)) waiting_.insert(id);
    if (lease.state == LeaseState::offered) answers_.emplace(now, Claim{id});
    if (lease.state == LeaseState::pausing) paused_[id] = lease.parking->since;
    if (lease.state == LeaseState::pausing && yield_time_of(state_, id)) set_presence(id, Presence::gone);
    if (lease.state == LeaseState::resuming && !resume_failure(state_, id).empty()) silent_.insert(id);
    note_end(lease);
    if (is_given_back(state_, id)) end_at(id, {now + rules_.grace, Basis::stopping, now});
    answer(id);
  }
  for (const LeaseId id : state_.queue.in_order(aged))
    aged_.insert(find(state_, id)->waits_since() + rules_.reserve_after);
}

const Projection::Start* Projection::start_of(LeaseId waiter) {
  while (!starts_.contains(waiter) && play()) {
  }
  const auto found = starts_.find(waiter);
  return found == starts_.end() ? nullptr : &found->second;
}

std::optional<Time> Projection::return_of(LeaseId victim) {
  while (!returns_.contains(victim) && play()) {
  }
  const auto found = returns_.find(victim);
  return found == returns_.end() ? std::nullopt : std::optional(found->second);
}

// Plays the next event; false: there is none, or enough were played. The ends and answers of a moment come before its
// reading.
bool Projection::play() {
  const Time answered = answers_.empty() ? Time::never() : answers_.begin()->first;
  const Time ended = next_ends_.empty() ? Time::never() : next_ends_.begin()->first;
  const Time next = std::min({answered, ended, measure_ ? now_ : wake_at_});
  if (next > begun_ + horizon) return false;
  if (cut_ = events_ >= most_events; cut_) return false;
  ++events_;
  now_ = std::max(now_, next);
  if (ended <= now_) {
    end(next_ends_.begin()->second);
  } else if (answered <= now_) {
    const Fact fact = answers_.extract(answers_.begin()).mapped();
    take(fact);
  } else {
    measure_ = false;
    take(reading());
  }
  return true;
}

void Projection::take(const Fact& fact) {
  if (const auto* event = std::get_if<AttemptEvent>(&fact))
    set_presence(event->lease, std::holds_alternative<Parked>(event->what) ? Presence::gone : Presence::full);
  const Plan plan = step(state_, rules_, fact, now_);
  for (const Lease& lease : plan.changed) note(lease);
  for (const Action& action : plan.actions) {
    measure_ |= std::holds_alternative<TakeSnapshot>(action);
    if (const auto* park = std::get_if<Park>(&action)) answer(park->lease);
    if (const auto* unpark = std::get_if<Unpark>(&action)) answer(unpark->lease);
    if (const auto* wanted = std::get_if<GiveBack>(&action))
      end_at(wanted->lease, {now_ + rules_.grace, Basis::stopping, now_});
  }
  wake_at_ = std::max(plan.wake_at, now_ + Duration(1));
  aged_.erase(aged_.begin(), aged_.upper_bound(now_));
  if (!aged_.empty()) wake_at_ = std::min(wake_at_, *aged_.begin());
  for (const Nomination& held : state_.nominations)
    if (held.until > now_) wake_at_ = std::min(wake_at_, held.until);
}

// An exit status that teaches nothing about the consumer.
void Projection::end(LeaseId id) {
  const End its = ends_.at(id);
  next_ends_.erase({its.at, id});
  ends_.erase(id);
  const Lease& lease = *find(state_, id);  // it reserves memory
  freed_.push_back({id, now_, its.basis, its.start, {}, is_given_back(state_, id), {}, lease.devices});
  set_presence(id, Presence::gone);
  if (lease.owner.kind == OwnerKind::token) take(Release{.lease = id, .force = true});
  else take(ProgramEnded{id, 1, false});
}

void Projection::set_presence(LeaseId id, Presence presence) {
  const Lease* lease = find(state_, id);
  if (lease == nullptr) return;
  presence_[id] = presence;
  stale_.insert(lease->devices.begin(), lease->devices.end());
  measure_ = true;
}

// The program of a lease starts, and takes its memory.
void Projection::begin(const Lease& lease) {
  set_presence(lease.id, Presence::full);
  if (lease.owner.kind != OwnerKind::connection || lease.command.empty()) return;
  const ProcessRef process = virtual_process(lease.id);
  answers_.emplace(now_, Attach{lease.id, 0, {OwnerKind::process, process, {process.pid, 2}, {}}, true, {}});
}

// Looks at a lease that changed.
void Projection::note(const Lease& lease) {
  const bool ended = lease.ended() && lease.ended_at == now_ && !lease.devices.empty();
  if (ended && (freed_.empty() || freed_.back().lease != lease.id))  // by a decision of the core
    freed_.push_back({lease.id, now_, Basis::nothing, {}, {}, false, {}, lease.devices});
  note_end(lease);
  if (lease.state == LeaseState::offered) answers_.emplace(now_, Claim{lease.id});
  if (lease.state == LeaseState::active) paused_.erase(lease.id);
  if (lease.state == LeaseState::pausing && paused_.try_emplace(lease.id, now_).second) returns_.erase(lease.id);
  if (lease.state == LeaseState::paused) {
    if (const auto asked = paused_.find(lease.id); asked != paused_.end()) {
      freed_.push_back({lease.id, now_, Basis::nothing, {}, lease.parking->cause, false, asked->second, lease.devices});
      paused_.erase(asked);
    }
    if (state_.queue.contains(lease.id)) waiting_.insert(lease.id);
  }
  if (waiting_.contains(lease.id) && !state_.queue.contains(lease.id)) note_start(lease);
}

void Projection::note_end(const Lease& lease) {
  if (ends_.contains(lease.id) && is_given_back(state_, lease.id)) return;
  if (const auto before = ends_.find(lease.id); before != ends_.end()) {
    next_ends_.erase({before->second.at, lease.id});
    ends_.erase(before);
  }
  const Time start = lease.runs_since(now_);
  Expected end = expected_end(state_, rules_, lease, start, now_);
  bool known = end.known();
  if (end.basis == Basis::history_overdue) {  // longer than the median: as long as the longest
    end.at = start + *std::ranges::max_element(history_of(state_, lease.whose())->runs);
    known = end.at > now_;
  }
  if (!lease.reserves() || !known || (lease.parking && end.basis != Basis::stopping)) return;
  end_at(lease.id, {end.at, end.basis, start});
}

void Projection::end_at(LeaseId id, End end) {
  if (const auto before = ends_.find(id); before != ends_.end()) next_ends_.erase({before->second.at, id});
  ends_[id] = end;
  next_ends_.emplace(end.at, id);
}

void Projection::note_start(const Lease& lease) {
  waiting_.erase(lease.id);
  const bool has_memory =
      lease.state == LeaseState::active || lease.state == LeaseState::offered || lease.state == LeaseState::resuming;
  if (!has_memory) return;
  if (lease.parking) returns_.try_emplace(lease.id, now_);
  const auto [entry, first] = starts_.try_emplace(lease.id, Start{now_, lease.devices, {}, 0});
  if (!first) return;
  if (lease.granted_at == now_) begin(lease);
  // The newest leases that freed memory on its devices. A waiter does not wait for its own end.
  Start& start = entry->second;
  const auto is_its = [&lease](const Freed& freed) {
    return freed.lease != lease.id && std::ranges::any_of(freed.devices, [&](const std::string& uuid) {
             return std::ranges::find(lease.devices, uuid) != lease.devices.end();
           });
  };
  for (auto freed = freed_.rbegin(); freed != freed_.rend(); ++freed) {
    if (!is_its(*freed)) continue;
    const bool alike = start.last.empty() || freed->cause.has_value() == start.by_pauses();
    if (alike && start.by_pauses() && freed->cause->preemptor != start.last.back().cause->preemptor) break;
    if (!alike && start.by_pauses()) break;
    if (alike && (start.by_pauses() || start.last.size() < told)) start.last.insert(start.last.begin(), *freed);
    else ++start.before;
  }
}

// The executor answers an order after the time that the move is predicted to take. An order that takes longer than it
// ever should, or that fails again and again, is not answered.
void Projection::answer(LeaseId id) {
  const Lease* lease = find(state_, id);
  const bool pauses = lease != nullptr && lease->state == LeaseState::pausing;
  const bool resumes = lease != nullptr && lease->state == LeaseState::resuming;
  const Attempt* attempt = attempt_of(state_, id);
  if ((!pauses && !resumes) || attempt == nullptr || !attempt->is_ordered()) return;
  if (is_stuck(state_, id) || silent_.contains(id)) return;
  Time at = now_;  // to undo a pause takes no time that is known
  if (const auto moving = move_of(state_, id)) {
    const Duration past = now_ - moving->since;
    if (past > moving->takes.longest) return;
    at = moving->since + (past <= moving->takes.likely ? moving->takes.likely : moving->takes.at_most);
  }
  if (pauses) answers_.emplace(at, AttemptEvent{id, Parked{.done = true, .bytes = lease->parking->host_bytes}});
  else answers_.emplace(at, AttemptEvent{id, Unparked{}});
}

// The readings of the devices where something came or went, and of pauses that are to be verified: the last real
// readings, without the processes that are gone, and with those that have come. Time passes if there are none.
Fact Projection::reading() {
  for (const LeaseId id : state_.pauses.verifying)
    if (const Lease* lease = find(state_, id)) stale_.insert(lease->devices.begin(), lease->devices.end());
  Snapshot snapshot{.began = now_, .host = state_.host.memory, .partial = true};
  for (const std::string& uuid : std::exchange(stale_, {})) {
    const auto found = state_.devices.by_uuid.find(uuid);
    if (found == state_.devices.by_uuid.end()) continue;  // it was given up
    const Device& device = found->second;
    DeviceReading reading = device.reading;
    reading.problem = device.problem;
    reading.lost = device.lost;
    std::erase_if(reading.processes, [&](const ProcessUse& use) {
      if (!presence_.contains(use.lease)) return false;
      const Lease* lease = find(state_, use.lease);
      const Bytes untold = lease == nullptr ? Bytes{} : charged_on(state_, *lease, uuid);
      reading.used -= std::min(reading.used, use.used.value_or(untold));
      return true;
    });
    for (const LeaseId id : device.leases) {
      const auto its = presence_.find(id);
      if (its == presence_.end() || its->second == Presence::gone) continue;
      const Lease& lease = *find(state_, id);
      const Bytes used = std::clamp(reading.for_programs() - reading.used, Bytes{}, lease.vram);
      reading.processes.push_back({lease.owner.process ? lease.owner.process : virtual_process(id), used, id});
      reading.used += used;
    }
    snapshot.devices.push_back(std::move(reading));
  }
  if (snapshot.devices.empty()) return Tick{};
  return snapshot;
}

std::shared_ptr<Projection> Projections::of(const State& state, const Rules& rules, Time now) {
  if (newest_ == nullptr || steps_ != state.steps) newest_ = std::make_shared<Projection>(state, rules, now);
  steps_ = state.steps;
  return newest_;
}

}  // namespace sublet::explain
