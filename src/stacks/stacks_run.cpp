// SPDX-License-Identifier: Apache-2.0
// How stacks move on: grants and ends of their leases, calls of the worker, and what the engine shows.
#include "stacks/stacks.h"

#include "base/log.h"
#include "base/text.h"
#include "compose/interposer.h"
#include "stacks/overlay.h"
#include "stacks/steps.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::stacks {
namespace {

using core::LeaseState;

constexpr Duration look_again = std::chrono::seconds(1);  // at a stack whose containers are not ready
constexpr Duration wakes_up = std::chrono::minutes(1);    // after a pause, until a healthcheck tells the truth again
constexpr Duration lines_patience = std::chrono::seconds(2);  // for the last lines of a stack that has failed
constexpr int last_lines = 80;                                // of each container
constexpr std::size_t longest_lines = 64 * 1024;              // bytes
constexpr Duration retry_after = std::chrono::seconds(2);     // a call that the worker could not make
constexpr Duration seen_patience = std::chrono::seconds(5);   // for the first report of its containers, before `up`

std::string why_ended(const core::Lease& lease, const core::Plan& plan) {
  std::string why(core::to_string(lease.end_reason));
  for (const core::Reason& reason : plan.reasons)
    if (reason.lease == lease.id && core::code(reason) == "ended") why = core::text_of(reason);
  return why;
}

}  // namespace

// -------------------------------------------------------------------------------- leases

void Stacks::happened(const core::Plan& plan, Time now) {
  reclaimable_.happened(plan);
  for (const auto& [lease, terms] : reclaimable_.made())
    if (const auto found = by_lease_.find(lease); found != by_lease_.end() && reclaimable_.wanted_for(lease))
      rows_.wake(found->second, now);
  for (const core::Lease& lease : plan.changed) {
    if (lease.ended()) forget_waiter(lease.id);
    const auto found = by_lease_.find(lease.id);
    if (found == by_lease_.end()) continue;
    Entry& entry = entries_.at(found->second);
    Stack& stack = entry.stack;
    rows_.wake(stack.name, now);
    const auto before = std::pair(stack.phase, stack.why);
    if (lease.ended()) {
      stack.peak = std::max(stack.peak, lease.peak_used);
      by_lease_.erase(found);
      stop(stack, "its lease ended: " + why_ended(lease, plan), now);
    } else if (lease.state == LeaseState::active) {
      if (stack.phase == Phase::queued) entry.devices = lease.devices;
      granted(stack, now);
    }
    if (before != std::pair(stack.phase, stack.why)) changed(entry);
  }
  for (const core::Resumed& lease : plan.resumed) {
    const auto found = by_lease_.find(lease.lease);
    if (found == by_lease_.end()) continue;
    Entry& entry = entries_.at(found->second);
    stand_still(entry.stack, lease.stood_still);
    changed(entry);
  }
}

std::optional<Time> Stacks::parked_since(const Stack& stack) const {
  const core::Lease* lease = engine_.find(stack.use.lease);
  return lease != nullptr && lease->parking ? std::optional(lease->parking->since) : std::nullopt;
}

// The machine slept: this time counts for nobody. A parked stack stands still anyhow.
void Stacks::sleep_through(Duration asleep) {
  forgiven_ = forgiven_ + asleep;
  for (auto& [name, entry] : entries_) {
    const Use& use = entry.stack.use;
    if ((!use.expires_at && !use.ready_by) || parked_since(entry.stack)) continue;
    stand_still(entry.stack, asleep);
    changed(entry);
  }
}

std::string memory_is_for(LeaseId waiter) { return fmt::format("its memory is for {} ", to_string(waiter)); }

// The memory of a released stack is for leases that wait: then it is brought down. The core ends a pinned spot lease by
// itself only if no process was booked to it.
void Stacks::declare(Entry& entry, Time now) {
  Stack& stack = entry.stack;
  const LeaseId lease = stack.use.lease;
  if (!lease) return;
  const bool leaves = stack.phase == Phase::stopping && entry.trouble.empty();  // the core counts on its memory
  if (stack.phase != Phase::released && !leaves) return reclaimable_.withdraw(lease);
  const LeaseId waiter = reclaimable_.wanted_for(lease);
  if (!waiter || leaves)
    return reclaimable_.declare(lease, {.taken = core::Reclaim::Taken::give_back, .least = core::Tier::batch});
  const core::Lease* waits = engine_.find(waiter);
  stop(stack,
       waits == nullptr ? memory_is_for(waiter)
                        : fmt::format("{}({}, {})", memory_is_for(waiter), waits->consumer, waits->user),
       now);
  changed(entry);
}

// A stack that was brought down for a lease need not tell this any more.
void Stacks::forget_waiter(LeaseId lease) {
  for (auto& [name, entry] : entries_) {
    if (entry.stack.phase != Phase::down || !entry.stack.why.starts_with(memory_is_for(lease))) continue;
    entry.stack.why.clear();
    changed(entry);
  }
}

// -------------------------------------------------------------------------------- the engine's reports

void Stacks::observed(const compose::Observation& seen) {
  const engine::Engine::Transaction transaction(engine_);
  for (auto& [name, entry] : entries_) {
    const std::string& project = !entry.stack.project.empty() ? entry.stack.project
                                 : entry.found                ? entry.found->project
                                                              : entry.stack.name;
    if (project != seen.project) continue;
    entry.seen = seen;
    entry.fresh = entry.call == 0;
    judge(entry, engine_.now());
    rows_.wake(name, engine_.now());
  }
}

void Stacks::engine_changed(const compose::Engine& now) {
  const engine::Engine::Transaction transaction(engine_);
  const bool is_back = now.reachable && container_engine_ && !container_engine_->reachable;
  container_engine_ = now;
  if (is_back)
    for (auto& [name, entry] : entries_) {
      entry.retry_at = {};
      entry.stack.gone_since.reset();  // what the engine showed before may be long ago
    }
  if (!now.version.empty() || !now.program.empty()) worker_problem_.clear();  // the worker is there
  describe_at_ = engine_.now();
  look_at_all();
}

void Stacks::look_at_all() {
  for (const auto& [name, entry] : entries_) rows_.wake(name, engine_.now());
  engine_.call_capabilities();
}

// Its processes are parked, or were a moment ago: no healthcheck of a start can succeed.
bool Stacks::stands_still(const Entry& entry, Time now) const {
  const core::Lease* lease = entry.stack.phase == Phase::starting ? engine_.find(entry.stack.use.lease) : nullptr;
  if (lease == nullptr) return false;
  return lease->state != LeaseState::active || (lease->resumed_at && now < *lease->resumed_at + wakes_up);
}

// A later change of the Compose file does not change the rule of what was started from it.
void Stacks::judge(Entry& entry, Time now) {
  if (!entry.seen) return;
  const Rule rule = entry.stack.by_label ? Rule::label : Rule::containers;
  entry.readiness = stacks::judge(rule, *entry.seen, options_.label);
  // Nothing that its containers seem to be counts before its processes run.
  const bool starts_away = entry.stack.phase == Phase::starting && is_away(entry);
  if (starts_away && entry.readiness.health == Health::ready) return;
  if (stands_still(entry, now) && entry.readiness.health == Health::unhealthy) return;
  const bool is_blind = container_engine_ && !container_engine_->reachable;
  if (is_blind && entry.stack.gone_since) return;
  if (!looked_ || !observe(entry.stack, entry.readiness, entry.fresh, now, is_away(entry))) return;
  if (entry.stack.phase == Phase::stopping) note_last(entry);
  changed(entry);
}

// Callers are told why the use ended, when its containers are gone.
void Stacks::note_last(Entry& entry) {
  entry.last_health = entry.readiness.health;
  for (const compose::Container& one : entry.seen->containers) {
    const auto label = one.labels.find(options_.label.key);
    if (label != one.labels.end() && label->second == options_.label.value) entry.last_state = one.state;
  }
}

// -------------------------------------------------------------------------------- moving on

Time Stacks::due(Time now) {
  if (const Duration asleep = engine_.clock().time_asleep() - forgiven_; asleep > Duration{}) sleep_through(asleep);
  Time next = Time::never();
  if (!describing_ && (!looked_ || !worker_problem_.empty())) {
    if (now >= describe_at_) describe();
    else next = describe_at_;
  }
  next = std::min(next, answer_asked(now));
  for (const std::string& name : rows_.due(now))
    if (Entry* entry = mutable_find(name)) declare(*entry, now), rows_.wake_by(name, drive(*entry, now));
  return std::min(next, rows_.next());
}

Time Stacks::drive(Entry& entry, Time now) {
  Stack& stack = entry.stack;
  if (stack.use.lease && stack.phase != Phase::stopping) {
    const core::Lease* lease = engine_.find(stack.use.lease);
    if (lease == nullptr || lease->ended()) {  // lost with the store, or ended while the daemon did not run
      by_lease_.erase(stack.use.lease);
      stop(stack, "its lease is gone", now);
      changed(entry);
    } else if (stack.phase == Phase::queued && lease->state == LeaseState::active) {
      entry.devices = lease->devices;
      granted(stack, now);
      changed(entry);
    }
  }
  const auto parked = parked_since(stack);  // then its limits stand still, and its resume moves them
  if (!parked && stands_still(entry, now)) forgive(stack, wakes_up, now);
  if (pass_time(stack, parked.value_or(now))) changed(entry);
  judge(entry, now);
  switch (stack.phase) {
    case Phase::creating:
      // A program asks for its limit while `up` may still wait for another service.
      if (entry.call != 0 && !interposed_services(entry).empty()) book(entry);
      return create(entry, now);
    case Phase::stopping: return bring_down(entry, now);
    case Phase::released:
      if (now >= entry.retry_at) make_spot(entry);
      [[fallthrough]];
    case Phase::starting:
    case Phase::ready:
      book(entry);
      return std::min({parked ? Time::never() : next_step(stack, now), next_try(entry, now),
                       is_settled(entry) ? Time::never() : now + look_again});
    default: return Time::never();
  }
}

// Nothing about its containers changes its state by time alone.
bool Stacks::is_settled(const Entry& entry) const {
  if (!entry.seen || entry.readiness.health != Health::ready) return false;
  const auto is_booked = [&](const compose::Container& each) {
    const auto booked = entry.booked.find(each.id);
    return each.pid <= 0 || (booked != entry.booked.end() && booked->second == each.pid);
  };
  return !entry.stack.gone_since && !parked_since(entry.stack) &&
         std::ranges::all_of(entry.seen->containers, is_booked);
}

// When a decision that was refused is tried again.
Time Stacks::next_try(const Entry& entry, Time now) { return entry.retry_at > now ? entry.retry_at : Time::never(); }

// Whether a call of the worker may be made now: the decision for it must be durable.
bool Stacks::may_call(Entry& entry, Time now) {
  if (entry.call != 0 || now < entry.retry_at) return false;
  return rows_.is_durable(entry.stack.name);
}

// Another stack is being brought down on one of the devices: its containers may still hold memory there.
bool Stacks::others_leave(const Entry& entry) const {
  return std::ranges::any_of(entries_, [&](const auto& each) {
    const Entry& other = each.second;
    if (&other == &entry || other.stack.phase != Phase::stopping || !other.trouble.empty()) return false;
    if (other.devices.empty() || entry.devices.empty()) return true;
    return std::ranges::any_of(other.devices,
                               [&](const auto& uuid) { return std::ranges::count(entry.devices, uuid) > 0; });
  });
}

compose::Start Stacks::start_of(const Entry& entry) const {
  const Stack& stack = entry.stack;
  const core::Lease* lease = engine_.find(stack.use.lease);
  const auto interposed = interposed_services(entry);
  const Grant grant{.stack = stack.name,
                    .lease = stack.use.lease,
                    .devices = lease != nullptr ? lease->devices : entry.devices,
                    .environment = engine_.options().program_env,
                    .gpu_runtime = container_engine_ && container_engine_->gpu_runtime,
                    .interposed = interposed};
  return {.name = stack.name,
          .project = stack.project,
          .directory = stack.directory,
          .resolved = entry.resolved,
          .overlay = make_overlay(*entry.found, grant),
          .timeout = options_.command_timeout,
          .recreate = stack.recreate,
          .credit = interposed.empty() ? "" : options_.credit,
          .interposed = interposed};
}

// By its Compose file as it is now.
std::vector<std::string> Stacks::interposed_services(const Entry& entry) {
  const auto file = parse_extension(entry.stack.name, entry.found ? entry.found->extension : "");
  if (!file || !file->interposer.value_or(false)) return {};
  return compose::services_with_gpu(entry.found->services);
}

Time Stacks::create(Entry& entry, Time now) {
  Stack& stack = entry.stack;
  if (!looked_ || entry.call != 0) return Time::never();
  const auto rule = this->rule(entry);
  if (rule && !entry.seen && now < stack.since + seen_patience) return stack.since + seen_patience;
  Status good = rule ? check_containers(entry, entry.found->directory) : Status(rule.error());
  if (good && !stack.project.empty() && stack.project != entry.found->project)  // its containers may still run
    good = Error{
        .code = Code::Stale,
        .detail = fmt::format("its Compose project is '{}' now, and was '{}'", entry.found->project, stack.project),
        .hint = {}};
  if (!good) {
    fail(stack, "it cannot be started: " + good.error().detail, now);
    changed(entry);
    return Time::never();
  }
  if (others_leave(entry)) return now + look_again;
  const bool by_label = *rule == Rule::label;
  if (stack.project != entry.found->project || stack.directory != entry.found->directory ||
      stack.by_label != by_label) {
    stack.by_label = by_label;
    stack.project = entry.found->project;
    stack.directory = entry.found->directory;
    changed(entry);
  }
  if (!may_call(entry, now)) return now < entry.retry_at ? entry.retry_at : Time::never();
  entry.resolved = entry.found->resolved;
  entry.call = ++last_call_;
  worker_.up(start_of(entry),
             [this, name = stack.name, call = entry.call](const Status& done) { up_done(name, call, done); });
  return Time::never();
}

void Stacks::up_done(const std::string& name, std::uint64_t call, const Status& done) {
  const engine::Engine::Transaction transaction(engine_);
  Entry* entry = mutable_find(name);
  if (entry == nullptr || entry->call != call) return;
  entry->call = 0;
  entry->fresh = false;
  entry->trouble.clear();
  rows_.wake(name, engine_.now());
  Stack& stack = entry->stack;
  if (stack.phase != Phase::creating) return;  // it was given back meanwhile
  const Time now = engine_.now();
  if (done) {
    created(stack, options_.ready_timeout, now);
    watch(true);  // the answer is from after the end of `up`
  } else if (done.error().code == Code::Unavailable && now - stack.since < options_.command_timeout) {
    entry->trouble = done.error().detail;
    entry->retry_at = now + retry_after;
    return;
  } else {
    fail(stack, "it could not be started: " + done.error().detail, now);
  }
  changed(*entry);
}

// Asks for the last lines of the containers once. Returns whether the stack may be brought down now.
bool Stacks::read_last_lines(Entry& entry, Time now) {
  if (entry.lines_by == Time{}) {
    entry.lines_by = now + lines_patience;
    entry.last_uid = entry.stack.use.uid;
    const auto of_it = [this, name = entry.stack.name]() -> Entry* {
      Entry* found = mutable_find(name);
      return found != nullptr && found->reads_lines() ? found : nullptr;
    };
    worker_.logs(
        {.project = entry.stack.project, .service = {}, .tail = last_lines},
        [of_it](const std::string& text) {
          if (Entry* found = of_it(); found != nullptr && found->last_lines.size() < longest_lines)
            found->last_lines += text;
        },
        [this, of_it](const Status&) {
          Entry* found = of_it();
          if (found == nullptr) return;
          found->lines_done = true;
          rows_.wake(found->stack.name, engine_.now());
        });
  }
  if (now >= entry.lines_by) entry.lines_done = true;
  return entry.lines_done;
}

Time Stacks::bring_down(Entry& entry, Time now) {
  Stack& stack = entry.stack;
  if (stack.project.empty()) {  // `up` was never called
    if (now < entry.retry_at) return entry.retry_at;
    finish(entry, now);
    return stack.phase == Phase::stopping ? entry.retry_at : Time::never();
  }
  if (!may_call(entry, now)) return entry.call == 0 && now < entry.retry_at ? entry.retry_at : Time::never();
  if (const Status own = check_containers(entry, stack.directory); !own) {
    try_again(entry, "it could not be brought down: " + own.error().detail);
    return entry.retry_at;
  }
  if (entry.reads_lines() && !read_last_lines(entry, now)) return entry.lines_by;
  entry.call = ++last_call_;
  worker_.down({.name = stack.name,
                .project = stack.project,
                .directory = stack.directory,
                .resolved = entry.resolved,
                .timeout = options_.command_timeout},
               [this, name = stack.name, call = entry.call](const Status& done) { down_done(name, call, done); });
  return Time::never();
}

void Stacks::down_done(const std::string& name, std::uint64_t call, const Status& done) {
  const engine::Engine::Transaction transaction(engine_);
  Entry* entry = mutable_find(name);
  if (entry == nullptr || entry->call != call) return;
  entry->call = 0;
  rows_.wake(name, engine_.now());
  if (done) return finish(*entry, engine_.now());
  try_again(*entry, "it could not be brought down: " + done.error().detail);
}

// It stays as it is for now, and its lease with it.
void Stacks::try_again(Entry& entry, std::string why) {
  entry.retry_at = engine_.now() + retry_after;
  const std::string before = std::exchange(entry.trouble, std::move(why));
  if (entry.trouble == before) return;
  log::warn({.lease = entry.stack.use.lease, .program = {}}, "stack {}: {}", printable(entry.stack.name),
            printable(entry.trouble));
}

// It is down: its lease ends now, and not earlier, because its containers might have held the memory. With its
// containers all processes are gone: the core ends a paused lease only if it knows this. One commit has both ends.
void Stacks::finish(Entry& entry, Time now) {
  if (const Status may = engine_.may_decide(); !may)
    return try_again(entry, "its lease could not be ended: " + may.error().detail);
  Stack& stack = entry.stack;
  const Stack before = stack;
  const LeaseId id = stack.use.lease;
  if (is_away(entry)) (void)engine_.decide(core::LivenessReport{id, false});
  const core::Lease* lease = id ? engine_.find(id) : nullptr;
  if (lease != nullptr) stack.peak = std::max(stack.peak, lease->peak_used);
  stopped(stack, now);
  by_lease_.erase(id);
  changed(entry);
  if (lease != nullptr && !lease->ended()) {
    const auto done = engine_.decide(core::Release{.lease = id, .force = true});
    if (!done) {
      stack = before;
      by_lease_[id] = stack.name;
      changed(entry);
      return try_again(entry, "its lease could not be ended: " + done.error().detail);
    }
  }
  entry.booked.clear();
  entry.devices.clear();
  entry.resolved.clear();
  for (const auto& [name, other] : entries_)
    if (other.stack.phase == Phase::creating) rows_.wake(name, now);  // it may wait for the memory of this one
  watch(false);
  engine_.observer().take_snapshot();
}

}  // namespace sublet::stacks
