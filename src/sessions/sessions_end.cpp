// SPDX-License-Identifier: Apache-2.0
// How sessions end: the steps of an end, parked programs, and the checkpoint command.
#include "sessions/sessions.h"

#include "base/log.h"
#include "base/text.h"
#include "sessions/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace sublet::sessions {
namespace {

using namespace std::chrono_literals;
using core::Lease;
using core::LeaseState;

constexpr Duration look_again = 1s;     // at a step that decisions end, in case that one was missed
constexpr Duration report_grace = 10s;  // after the deadline of a checkpoint command, for the report of its keeper
constexpr Duration keepers_away = 1s;
constexpr Duration look_at_hook = 5s;  // how often the keeper of a checkpoint command is looked at

core::PauseCause cause_of(const Progress& progress, Time now) {
  switch (progress.end) {
    case End::closed: return {core::PauseCauseKind::owner_request};
    case End::revoked: return {core::PauseCauseKind::admin_request};
    default: return {core::PauseCauseKind::idle, {}, core::args("idle", now - progress.last_activity)};
  }
}

// Whether the lease has a program that runs, or can run again: the program could be saved or parked.
bool can_run(const Lease* lease) {
  if (lease == nullptr || lease->ended() || !lease->had_process) return false;
  return lease->state == LeaseState::active || (lease->parking && lease->state != LeaseState::poisoned);
}

void add_sentence(std::string& text, const std::string& more) { text += (text.empty() ? "" : "; ") + more; }

// The end of the lease has the word of the session's end, so that all reports tell the same.
core::End lease_end(const Session& session, const Lease& lease, Time now) {
  using core::EndReason, core::ReasonKind;
  const Progress& progress = session.progress;
  core::End end{.lease = lease.id, .why = EndReason::expired, .kind = ReasonKind::idle_ended};
  if (progress.end == End::revoked) {
    end.why = EndReason::revoked;
    end.kind = ReasonKind::revoked_by_admin;
  } else if (progress.end == End::expired) {
    end.kind = ReasonKind::time_over;
    end.args = core::args("ttl", session.request.ttl);
  } else {
    end.args = core::args("idle", now - progress.last_activity);
  }
  return end;
}

}  // namespace

void Sessions::end(Entry& entry, End why, bool park, std::string text, Time now) {
  Session& session = entry.session;
  const Lease* lease = lease_of(session);
  const bool holds = lease == nullptr || !has_given_back(session, *lease);
  begin_end(session, why, park && holds && options_.keep_parked > Duration{}, can_run(lease), std::move(text), now);
  entry.pause_ordered = entry.release_ordered = false;
  // Without a lease, there is nothing to end: a keeper that has not asked for its lease is refused from now on.
  if (lease == nullptr || lease->ended()) ++session.progress.start;
  changed(entry);
}

// Nothing of it is left but its record.
void Sessions::close_now(Entry& entry, Time now) {
  Session& session = entry.session;
  if (session.progress.lease) by_lease_.erase(session.progress.lease);
  session.progress.checkpoint.running = false;
  move(entry, State::closed, session.progress.why, now);
}

void Sessions::go_on(Entry& entry, Step step) {
  entry.session.progress.step = step;
  entry.pause_ordered = entry.release_ordered = false;
  changed(entry);
}

Time Sessions::drive_end(Entry& entry, Time now) {
  Progress& progress = entry.session.progress;
  const Lease* lease = progress.lease ? core::find(engine_.state(), progress.lease) : nullptr;
  const bool over = lease == nullptr || (lease->ended() && lease->devices.empty());
  if (over && progress.checkpoint.running) return now + look_again;  // its last run has time until its deadline
  if (over || goes_on_without(entry, *lease)) {
    close_now(entry, now);
    return now;
  }
  if (lease->ended()) {  // closed once its bytes are measured gone
    progress.step = Step::releasing;
    return now + look_again;
  }
  switch (progress.step) {
    case Step::parking: return park(entry, *lease, now);
    case Step::resuming: return bring_back(entry, *lease, now);
    case Step::checkpoint: return save(entry, *lease, now);
    case Step::none:
    case Step::releasing: return release(entry, *lease, now);
  }
  return Time::never();
}

// Sublet ends no program that it did not start: the session is closed, and the program goes on without a lease.
bool Sessions::goes_on_without(Entry& entry, const Lease& lease) const {
  Progress& progress = entry.session.progress;
  const bool saves =
      progress.checkpoint.running || (!progress.checkpoint_tried && !entry.session.request.checkpoint.empty());
  if (!lease.ended() || lease.owner.keeper || saves) return false;
  std::vector<std::int32_t> pids;
  for (const core::Booked& booked : lease.booked)
    if (booked.process && engine_.programs().lives(booked.process)) pids.push_back(booked.process.pid);
  if (pids.empty()) return false;
  add_sentence(progress.why, fmt::format("pid {} runs without it now", fmt::join(pids, ", ")));
  return true;
}

Time Sessions::park(Entry& entry, const Lease& lease, Time now) {
  Progress& progress = entry.session.progress;
  const bool wanted = lease.parking && lease.parking->resume_requested;
  if (entry.pause_ordered && wanted) {
    cancel_end(entry, lease, now);
    return now;
  }
  const bool unwanted = !progress.park && progress.failures == 0;  // its user changed their mind
  if (lease.state == LeaseState::paused && !wanted && unwanted) {
    unpark(entry);
    return now;
  }
  if (lease.state == LeaseState::active && !entry.pause_ordered && unwanted) {
    go_on(entry, next_step(entry.session, can_run(&lease)));
    return now;
  }
  if (lease.state == LeaseState::paused && !wanted) {
    progress.kept_until = after(now, options_.keep_parked);
    const Time kept_until = *progress.kept_until;
    enter(entry.session, State::parked, progress.why, now);
    progress.kept_until = kept_until;
    changed(entry);
    return kept_until;
  }
  if (lease.state == LeaseState::pausing || lease.state == LeaseState::resuming) return now + look_again;
  const bool has_memory = lease.state == LeaseState::active || lease.state == LeaseState::paused;
  std::string problem;
  if (has_memory && !entry.pause_ordered) {
    entry.pause_ordered = true;
    entry.pause_problem.clear();
    const auto asked =
        engine_.decide(core::Pause{lease.id, 0, cause_of(progress, now), engine_.observer().host_memory(&lease)});
    if (asked) return now + look_again;
    problem = asked.error().detail;
  } else if (has_memory) {
    problem = entry.pause_problem.empty() ? "its pause did not come through" : entry.pause_problem;
  }
  progress.parking_tried = true;
  if (!problem.empty() && lease.had_process) add_sentence(progress.why, "it was not parked: " + problem);
  go_on(entry, next_step(entry.session, can_run(&lease)));
  return now;
}

// Its program was told to run again, and has not answered for the time of a grace.
bool Sessions::hangs(const Lease& lease, Time now) const {
  return core::unanswered_for(engine_.state(), lease, now) >= engine_.rules().grace;
}

// Its kept program runs again, for its checkpoint.
Time Sessions::bring_back(Entry& entry, const Lease& lease, Time now) {
  if (lease.state == LeaseState::active) {
    go_on(entry, Step::checkpoint);
    return now;
  }
  if (lease.state == LeaseState::poisoned || hangs(lease, now)) {
    go_on(entry, Step::releasing);
    return now;
  }
  if (lease.state == LeaseState::paused && !lease.parking->resume_requested)
    (void)engine_.decide(core::Resume{lease.id});
  return now + look_again;
}

// The checkpoint command runs while the lease is kept alive.
Time Sessions::save(Entry& entry, const Lease& lease, Time now) {
  Session& session = entry.session;
  Progress& progress = session.progress;
  if (lease.state != LeaseState::active && !progress.checkpoint.running) {
    if (lease.state == LeaseState::paused && !lease.parking->resume_requested)
      (void)engine_.decide(core::Resume{lease.id});
    if (can_run(&lease) && !hangs(lease, now)) return now + look_again;
    progress.checkpoint_tried = true;
    ++progress.failures;
    go_on(entry, next_step(session, false));
    return now;
  }
  if (!progress.checkpoint.running) {
    progress.checkpoint_tried = true;
    begin_checkpoint(entry, now);
  }
  return keep_alive(session, lease, now);
}

// A program that Sublet started is ended with its tree. Other processes go on without the lease.
Time Sessions::release(Entry& entry, const Lease& lease, Time now) {
  const Progress& progress = entry.session.progress;
  if (entry.release_ordered) return now + look_again;
  if (must_stay(entry.session, lease)) {
    cancel_end(entry, lease, now);
    return now;
  }
  const bool has_word = progress.end == End::expired || progress.end == End::idle || progress.end == End::revoked;
  // A parked program runs again first, so that it can save its work. The core ends one that does not answer.
  if (has_word && can_run(&lease) && lease.state != LeaseState::active && !hangs(lease, now))
    return bring_back(entry, lease, now);
  entry.release_ordered = true;
  const bool started_here = static_cast<bool>(lease.owner.keeper);
  const core::Release released{.lease = lease.id,
                               .force = !started_here,
                               .stop = true,
                               .revoke = lease.state == LeaseState::poisoned,
                               .asked_by = progress.on_request ? std::optional(progress.ended_by) : std::nullopt};
  const bool ends = has_word && lease.state == LeaseState::active;
  const auto done = ends ? engine_.decide(lease_end(entry.session, lease, now)) : engine_.decide(released);
  if (done) return now + look_again;
  entry.release_ordered = false;
  if (entry.warning == done.error().detail) return now + look_again;
  entry.warning = done.error().detail;
  log::warn({.lease = lease.id, .program = {}}, "{} does not end: {}", entry.session.id(), entry.warning);
  return now + look_again;
}

// A parked program is kept for a while.
Time Sessions::keep(Entry& entry, Time now) {
  Session& session = entry.session;
  Progress& progress = session.progress;
  const Lease* lease = lease_of(session);
  if (lease == nullptr || lease->ended()) {
    progress.why = "its lease is gone";
    close_now(entry, now);
    return now;
  }
  if (lease->state == LeaseState::active) {
    became_active(entry, *lease, now);
    return now;
  }
  if (progress.kept_until && now < *progress.kept_until) return *progress.kept_until;
  if (!progress.on_request)
    add_sentence(progress.why, "it was kept parked for " + format_duration(options_.keep_parked));
  unpark(entry);
  return now;
}

// The end of a program that is parked: it runs again for its checkpoint, or ends.
void Sessions::unpark(Entry& entry) {
  Session& session = entry.session;
  Progress& progress = session.progress;
  const bool saves = !session.request.checkpoint.empty() && progress.failures < 2;
  const int failures = progress.failures;
  begin_end(session, progress.end, false, false, progress.why, engine_.now());
  progress.failures = failures;
  go_on(entry, saves ? Step::resuming : Step::releasing);
}

// -------------------------------------------------------------------------------- the checkpoint command

void Sessions::begin_checkpoint(Entry& entry, Time now) {
  Checkpoint& checkpoint = entry.session.progress.checkpoint;
  ++checkpoint.number;
  checkpoint.running = true;
  checkpoint.started = now;
  entry.hook_lost_at = {};
  changed(entry);
}

Time Sessions::next_checkpoint(const Session& session) const {
  const Checkpoint& checkpoint = session.progress.checkpoint;
  if (session.request.checkpoint.empty() || session.request.checkpoint_every <= Duration{} || checkpoint.running)
    return Time::never();
  return after(std::max(checkpoint.started, session.progress.renewed_at), session.request.checkpoint_every);
}

// A run without a report has failed then.
Time Sessions::checkpoint_deadline(const Session& session) const {
  return session.progress.checkpoint.started + session.request.checkpoint_timeout + report_grace;
}

Time Sessions::drive_checkpoint(Entry& entry, Time now) {
  Session& session = entry.session;
  Checkpoint& checkpoint = session.progress.checkpoint;
  if (!checkpoint.running) {
    const Lease* its = lease_of(session);
    const bool runs = !session.has_ended() && its != nullptr && its->state == LeaseState::active;
    if (runs && now >= next_checkpoint(session)) begin_checkpoint(entry, now);
    return Time::never();
  }
  const Time deadline = checkpoint_deadline(session);
  if (now >= deadline) {
    finish_checkpoint(entry, {.checkpoint = checkpoint.number, .problem = "its keeper did not report a result"}, now);
    return now;
  }
  const std::uint64_t number = session.number, run = checkpoint.number;
  const Lease* lease = lease_of(session);
  using Ordered = engine::OrderStep;
  switch (runs_.next_step(entry.hook, run, number, rows_)) {
    case Ordered::starts: return std::min(deadline, now + look_at_hook);
    case Ordered::lost:  // its report may be on its way
      if (entry.hook_lost_at == Time{}) entry.hook_lost_at = now;
      if (now < entry.hook_lost_at + report_grace) return std::min(deadline, now + look_again);
      finish_checkpoint(entry, {.checkpoint = run, .problem = "its keeper was killed"}, now);
      return now;
    case Ordered::away: return now + keepers_away;
    case Ordered::not_durable: return Time::never();
    case Ordered::order: break;
  }
  if (lease == nullptr) {
    finish_checkpoint(entry, {.checkpoint = run, .problem = "its lease is gone"}, now);
    return now;
  }
  runs_.start(run_of(session), hook_document(session, *lease), [this, number, run](const Result<ProcessRef>& started) {
    const auto found = entries_.find(number);
    if (found == entries_.end()) return;
    Entry& mine = found->second;
    const Checkpoint& its = mine.session.progress.checkpoint;
    if (!its.running || its.number != run) return;
    if (started) mine.hook.keeper = *started;
    else
      finish_checkpoint(mine, {.checkpoint = run, .problem = "it could not be started: " + started.error().detail},
                        engine_.now());
  });
  return std::min(deadline, now + look_at_hook);
}

void Sessions::finish_checkpoint(Entry& entry, const Report& report, Time now) {
  Session& session = entry.session;
  Progress& progress = session.progress;
  Checkpoint& checkpoint = progress.checkpoint;
  checkpoint.running = false;
  checkpoint.problem = report.problem.value_or("");
  if (!report.problem) {
    checkpoint.locator = report.locator;
    checkpoint.at = now;
    checkpoint.bytes = report.bytes;
    if (report.bytes) tell(entry, report.bytes);
  } else {
    log::warn({.lease = progress.lease, .program = {}}, "the checkpoint of {} failed: {}", session.id(),
              printable(*report.problem));
  }
  changed(entry);
  if (progress.state != State::ending || progress.step != Step::checkpoint) return;
  if (!progress.checkpoint_tried) return;  // it began before the end, for which another run follows
  if (report.problem) {
    if (++progress.failures == 1) add_sentence(progress.why, "its checkpoint failed");
    progress.detail = *report.problem;
  }
  go_on(entry, next_step(session, can_run(lease_of(session)) && options_.keep_parked > Duration{}));
}

nlohmann::json Sessions::hook_document(const Session& session, const Lease& lease) const {
  const Command& command = session.request.command;
  const Checkpoint& checkpoint = session.progress.checkpoint;
  std::vector<std::string> environment = command.environment;
  for (const auto& [name, value] : engine_.options().program_env) environment.push_back(name + "=" + value);
  environment.push_back("SUBLET_SESSION=" + session.id());
  environment.push_back("SUBLET_LEASE=" + to_string(lease.id));
  environment.push_back("SUBLET_HOST=" + options_.runs.host);
  environment.push_back(fmt::format("CUDA_VISIBLE_DEVICES={}", fmt::join(lease.devices, ",")));
  if (const std::int32_t pid = main_pid(lease); pid != 0) environment.push_back(fmt::format("SUBLET_PID={}", pid));
  if (checkpoint.at != Time{}) environment.push_back("SUBLET_CHECKPOINT=" + checkpoint.locator);
  nlohmann::json document = runs_.document(run_of(session), command, std::move(environment));
  document["arguments"] = session.request.checkpoint;
  document["hook"] = {{"number", checkpoint.number}, {"timeout_ms", session.request.checkpoint_timeout / 1ms}};
  return document;
}

}  // namespace sublet::sessions
