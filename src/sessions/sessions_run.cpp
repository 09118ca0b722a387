// SPDX-License-Identifier: Apache-2.0
// How sessions live: their leases, their renewals and their keepers.
#include "sessions/sessions.h"

#include "base/log.h"
#include "base/text.h"
#include "engine/lease_end.h"
#include "sessions/rules.h"
#include "state/format.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sessions {
namespace {

using namespace std::chrono_literals;
using core::Lease;
using core::LeaseState;

constexpr Duration look_for_keeper = 1s;  // how often a keeper that has not asked for its lease is looked for
constexpr Duration grow_again = 1min;     // after a refusal to grow
constexpr Duration closed_look = 24h;

}  // namespace

// -------------------------------------------------------------------------------- decisions

void Sessions::happened(const core::Plan& plan, Time now) {
  if (by_lease_.empty()) return;
  reclaimable_.happened(plan);
  for (const auto& [lease, terms] : reclaimable_.made())
    if (const auto found = by_lease_.find(lease); found != by_lease_.end() && reclaimable_.wanted_for(lease))
      rows_.wake(found->second, now);
  for (const Lease& lease : plan.changed) {
    const auto found = by_lease_.find(lease.id);
    if (found != by_lease_.end()) follow(entries_.at(found->second), lease, plan, now);
  }
  for (const core::Reason& reason : plan.reasons) {
    const auto found = by_lease_.find(reason.lease);
    if (found == by_lease_.end()) continue;
    Entry& entry = entries_.at(found->second);
    if (reason.kind == core::ReasonKind::spot_noticed) entry.noticed = true;
    if (core::subject_of(reason.kind) != "undone") continue;
    const bool is_told = reason.kind == core::ReasonKind::pause_failed;
    entry.pause_problem = is_told ? reason.args.text("detail") : core::text_of(reason);
  }
  for (const LeaseId id : plan.settled)
    if (const auto found = by_lease_.find(id); found != by_lease_.end()) rows_.wake(found->second, now);
}

void Sessions::follow(Entry& entry, const Lease& lease, const core::Plan& plan, Time now) {
  Session& session = entry.session;
  const State state = session.progress.state;
  rows_.wake(session.number, now);
  if (lease.ended()) return follow_end(entry, lease, plan, now);
  if (state == State::ending) {
    // Its owner wants the program that is being parked.
    const bool wanted = entry.pause_ordered && lease.parking && lease.parking->resume_requested;
    if (session.progress.step == Step::parking && wanted) cancel_end(entry, lease, now);
    return;
  }
  const bool returns = lease.state == LeaseState::resuming || (lease.parking && lease.parking->resume_requested);
  switch (lease.state) {
    case LeaseState::active: {
      const Lease* newest = lease_of(session);  // its size may be another one by now
      const bool has_given = has_given_back(session, newest != nullptr ? *newest : lease);
      if (!has_given && state != State::active) became_active(entry, lease, now);
      if (has_given && state == State::paused) move(entry, State::resting, "", now);
      break;
    }
    case LeaseState::queued:
    case LeaseState::offered:
      if (state != State::queued) move(entry, State::queued, "", now);
      break;
    case LeaseState::pausing:
    case LeaseState::paused:
    case LeaseState::resuming:
      if (state == State::active || state == State::resting)
        move(entry, State::paused, core::text_of(lease.parking->cause), now);
      else if (state == State::parked && returns) move(entry, State::queued, "", now);
      else if (state == State::queued && !returns) move(entry, State::paused, core::text_of(lease.parking->cause), now);
      break;
    case LeaseState::poisoned:  // drive() ends the session
    case LeaseState::ended: break;
  }
}

// A return is no activity, and its time to live goes on where its pause began.
void Sessions::became_active(Entry& entry, const Lease& lease, Time now) {
  Progress& progress = entry.session.progress;
  progress.continuous_since = now;
  progress.renewed_at = lease.expires_at && lease.ttl ? *lease.expires_at - *lease.ttl : now;
  progress.last_activity = std::max(progress.last_activity, progress.renewed_at);
  progress.wanted = {};
  progress.end = End::none;
  progress.on_request = false;
  entry.pause_ordered = entry.release_ordered = entry.rest_is_due = false;
  move(entry, State::active, "", now);
}

// Its lease ends by itself, or as the session wanted. It is closed once the bytes are measured gone.
void Sessions::follow_end(Entry& entry, const Lease& lease, const core::Plan& plan, Time now) {
  Progress& progress = entry.session.progress;
  progress.exit_status = lease.exit_status;
  if (progress.state == State::ending) {
    progress.step = Step::releasing;
    return changed(entry);
  }
  const End end = end_of(lease.end_reason, engine::ends_on_request(lease, plan));
  const bool program_ends = progress.state != State::parked;
  begin_end(entry.session, program_ends || progress.end == End::none ? end : progress.end, false, false,
            engine::why_ended(lease, plan), now);
  progress.checkpoint_tried = true;  // its program is gone, or was told to end
  progress.step = Step::releasing;
  changed(entry);
}

// -------------------------------------------------------------------------------- moving on

Time Sessions::due(Time now) {
  if (const Duration gap = engine_.clock().lost_time() - forgiven_; gap > Duration{}) forgive(gap, now);
  for (const std::uint64_t number : rows_.due(now))
    if (const auto found = entries_.find(number); found != entries_.end())
      rows_.wake_by(number, drive(found->second, now));
  for (const std::uint32_t uid : std::exchange(to_prune_, {})) prune(uid, now);
  return rows_.next();
}

// The time of a clock gap counts for nobody.
void Sessions::forgive(Duration gap, Time now) {
  forgiven_ = forgiven_ + gap;
  for (auto& [number, entry] : entries_) {
    if (entry.session.is_closed()) continue;
    Progress& progress = entry.session.progress;
    if (progress.kept_until) progress.kept_until = after(*progress.kept_until, gap);
    if (progress.checkpoint.running) progress.checkpoint.started = progress.checkpoint.started + gap;
    if (progress.kept_until || progress.checkpoint.running) rows_.change(number);
    progress.continuous_since = progress.continuous_since + gap;
    rows_.wake(number, now);
  }
}

// Returns when to look at the session again.
Time Sessions::drive(Entry& entry, Time now) {
  const Progress& progress = entry.session.progress;
  const Lease* lease = lease_of(entry.session);
  if (progress.state != State::active) keep_memory(entry);
  const bool poisoned = lease != nullptr && lease->state == LeaseState::poisoned;
  if (poisoned && (!entry.session.has_ended() || progress.state == State::parked))
    end(entry, End::failed, false, "its program can never run again: " + core::text_of(lease->parking->cause), now);
  switch (entry.session.progress.state) {
    case State::starting: return start_keeper(entry, now);
    case State::queued:
    case State::paused: {
      const Time next = check_waiting(entry, now);
      return rests(entry.session) ? std::min(next, drive_checkpoint(entry, now)) : next;
    }
    case State::active: return std::min(look(entry, now), drive_checkpoint(entry, now));
    case State::resting: return std::min(look_at_resting(entry, now), drive_checkpoint(entry, now));
    case State::ending: return std::min(drive_end(entry, now), drive_checkpoint(entry, now));
    case State::parked: return keep(entry, now);
    case State::closed: break;
  }
  to_prune_.insert(entry.session.uid);
  return now + closed_look;
}

// A session whose lease waits. It takes offers by itself, unless its keeper does.
Time Sessions::check_waiting(Entry& entry, Time now) {
  const Lease* lease = lease_of(entry.session);
  if (lease == nullptr || lease->ended()) {
    end(entry, End::lost, false, "its lease is gone", now);
    return now;
  }
  if (lease->state == LeaseState::active) {
    if (has_given_back(entry.session, *lease)) return wait_for_size(entry, *lease, now);
    became_active(entry, *lease, now);
    return now;
  }
  if (lease->state == LeaseState::offered && lease->owner.kind == core::OwnerKind::token)
    (void)engine_.decide(core::Claim{lease->id});
  return Time::never();
}

// -------------------------------------------------------------------------------- a session that is active

Time Sessions::look(Entry& entry, Time now) {
  const Lease* lease = lease_of(entry.session);
  if (lease == nullptr || lease->ended()) {
    end(entry, End::lost, false, "its lease is gone", now);
    return now;
  }
  if (lease->state != LeaseState::active) return Time::never();
  const Activity seen = activity(entry.session);
  entry.session.progress.last_activity = seen.last;
  const Time look_at_keeper = runs_.watch_keeper(run_of(entry.session), *lease, now);
  const Time next_keeper = entry.session.has_command() ? look_at_keeper : Time::never();
  Time next = std::min(next_keeper, cap(entry, *lease, seen, now));
  if (entry.session.progress.state != State::active) return next;
  next = std::min(next, renew(entry, *lease, now));
  if (entry.session.progress.state != State::active) return now;
  next = std::min({next, grow(entry, *lease, now), next_checkpoint(entry.session)});
  return std::min(next, heed_notice(entry, *lease, now));  // the lease may end by it
}

Time Sessions::renew(Entry& entry, const Lease& lease, Time now) {
  Session& session = entry.session;
  Progress& progress = session.progress;
  if (!lease.expires_at) return Time::never();
  const Life life{now, *lease.expires_at, session.request.ttl, progress.renewed_at, progress.last_activity};
  entry.rest_is_due = entry.rest_is_due && progress.last_activity <= progress.renewed_at;
  const Verdict verdict = entry.rest_is_due ? Verdict{Verdict::Act::expire} : judge(life, renewal_part(session.number));
  switch (verdict.act) {
    case Verdict::Act::wait: return verdict.look_at;
    case Verdict::Act::renew:
      progress.renewed_at = now;
      rows_.change(session.number);
      if (auto done = engine_.decide(core::Renew{lease.id}); !done)
        log::warn({.lease = lease.id, .program = {}}, "{} is not renewed: {}", session.id(), done.error().detail);
      return now;
    case Verdict::Act::expire: {
      const std::string why =
          fmt::format("its time of {} is over without activity", format_duration(session.request.ttl));
      const Rest rested = rest(entry, why, now);
      entry.rest_is_due = rested == Rest::later;
      if (rested == Rest::later) return keep_alive(session, lease, now);
      if (rested == Rest::no) end(entry, End::expired, true, why, now);
      return now;
    }
  }
  return Time::never();
}

// Without activity too.
Time Sessions::keep_alive(const Session& session, const Lease& lease, Time now) {
  const Duration ttl = lease.ttl.value_or(session.request.ttl);
  if (lease.expires_at && *lease.time_left(now) <= ttl / 2) (void)engine_.decide(core::Renew{lease.id});
  return std::min<Time>(now + 1s, now + ttl / 4);
}

// A lease that began smaller than its user wanted grows when there is memory.
Time Sessions::grow(Entry& entry, const Lease& lease, Time now) {
  if (lease.vram >= lease.asked_vram || lease.resize) return Time::never();
  if (now < entry.grow_at) return entry.grow_at;
  entry.grow_at = now + grow_again;
  (void)engine_.decide(core::Resize{lease.id, 0, lease.asked_vram, true});
  return entry.grow_at;
}

// -------------------------------------------------------------------------------- keepers

Time Sessions::start_keeper(Entry& entry, Time now) {
  Session& session = entry.session;
  const std::uint64_t number = session.number, start = session.progress.start;
  using Ordered = engine::OrderStep;
  if (session.request.exclusive) {
    const auto whole = whole_devices(session.request);
    if (!whole && whole.error().code == Code::Unavailable) return now + look_for_keeper;
  }
  switch (runs_.next_step(entry.keeper, start, number, rows_)) {
    case Ordered::starts:
    case Ordered::away: return now + look_for_keeper;
    case Ordered::lost:
      session.progress.end = End::failed;
      session.progress.why = "its keeper ended before it asked for a lease";
      close_now(entry, now);
      return Time::never();
    case Ordered::not_durable: return Time::never();
    case Ordered::order: break;
  }
  runs_.start(run_of(session), start_document(session), [this, number, start](const Result<ProcessRef>& started) {
    const auto found = entries_.find(number);
    if (found == entries_.end() || found->second.session.progress.start != start) return;
    Entry& mine = found->second;
    rows_.wake(number, engine_.now());
    if (started) {
      mine.keeper.keeper = *started;
    } else if (mine.session.progress.state == State::starting) {
      mine.session.progress.end = End::failed;
      mine.session.progress.why = "its keeper could not be started";
      mine.session.progress.detail = started.error().detail;
      close_now(mine, engine_.now());
    }
  });
  return now + look_for_keeper;
}

// The newest start.
engine::Run Sessions::run_of(const Session& session) const {
  return {.uid = session.uid,
          .user = session.user,
          .tag = session.id(),
          .kind = "session",
          .name = {{"id", session.id()}, {"start", session.progress.start}},
          .log = session.id() + ".log"};
}

nlohmann::json Sessions::start_document(const Session& session) const {
  const engine::Run run = run_of(session);
  const Command& command = session.request.command;
  std::vector<std::string> environment = command.environment;
  environment.push_back("SUBLET_SESSION=" + session.id());
  if (session.progress.checkpoint.at != Time{})
    environment.push_back("SUBLET_CHECKPOINT=" + session.progress.checkpoint.locator);
  nlohmann::json document = runs_.document(run, command, std::move(environment));
  nlohmann::json& request = document["request"] = session.request.lease;
  request["tag"] = session.tag();
  request["command"] = command.text;
  request["session"] = run.name;
  request["ttl_seconds"] = session.request.ttl / 1s;
  if (session.request.exclusive)
    if (const auto whole = whole_devices(session.request)) request["vram_bytes"] = whole->count;
  return document;
}

}  // namespace sublet::sessions
