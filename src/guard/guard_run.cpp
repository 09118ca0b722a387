// SPDX-License-Identifier: Apache-2.0
// The part of Guard that follows leases and starts keepers.
#include "base/log.h"
#include "base/text.h"
#include "engine/lease_end.h"
#include "guard/forgotten_logs.h"
#include "guard/guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace sublet::guard {

using nlohmann::json;

namespace {

// How long a start may take until its keeper asks for a lease; meanwhile the keeper is looked for this often.
constexpr Duration look_for_keeper = std::chrono::seconds(1);
// Starts that are under way at a time. After a mass restart, more would keep the processors from the loop and from the
// readings of the cards. A keeper that does not get on counts only for a while.
constexpr std::size_t most_starts = 4;
// The starts of one user among them, so that others start meanwhile.
constexpr std::size_t most_starts_of_user = 2;
constexpr Duration start_counts_for = std::chrono::seconds(2);
// How often the log of a removed program that runs on is looked at.
constexpr Duration remove_logs_again = std::chrono::seconds(10);

}  // namespace

void Guard::loaded(const store::Loaded& rows, Time now) {
  programs_.clear();
  by_lease_.clear();
  orderings_.clear();
  rows_.clear();
  all_known_ = true;
  logs_due_ = now;
  for (const store::CapabilityRow& row : rows.rows) {
    if (row.kind != row_kind) continue;
    auto program = from_row(row);
    if (!program) {
      log::error("{}", program.error().detail);
      all_known_ = false;
      continue;
    }
    last_number_ = std::max(last_number_, program->number);
    const Key key{program->uid, program->tag};
    Program& kept = programs_.emplace(key, std::move(*program)).first->second;
    if (kept.progress.phase == Phase::starting) {
      begin_start(kept, now);  // the keeper of the earlier order may live, and is refused from now on
      rows_.change(key);
    } else if (kept.is_up()) {
      by_lease_[kept.progress.lease] = key;
    }
    rows_.wake(key, now);
  }
  ceilings_.loaded();
  shortages_.forget_all();
  remarks_.clear();
}

void Guard::happened(const core::Plan& plan, Time now) {
  ceilings_.happened(plan);
  std::ranges::move(shortages_.explain(plan, now), std::back_inserter(remarks_));
  if (by_lease_.empty()) return;
  for (const core::Lease& lease : plan.changed) {
    const auto found = by_lease_.find(lease.id);
    if (found == by_lease_.end()) continue;
    const Key key = found->second;
    Program& program = programs_.at(key);
    rows_.wake(key, now);
    if (!lease.ended()) {
      const Phase before = program.progress.phase;
      follow(program, lease.state, now);
      // Its end was requested by its lease, and may come for another reason.
      const bool stops = lease.stop_requested && program.progress.wish == Wish::none;
      if (stops) program.progress.wish = Wish::stop;
      if (stops || program.progress.phase != before) rows_.change(key);
      if (before == Phase::starting) wake_starts();
      continue;
    }
    if (program.progress.ending) continue;
    const bool requested = engine::ends_on_request(lease, plan);
    if (lives_on(lease)) {
      program.progress.ending = true;
      program.progress.why = engine::why_ended(lease, plan);
      if (requested && program.progress.wish == Wish::none) program.progress.wish = Wish::stop;
      rows_.change(key);
    } else {
      ended(program, {lease.end_reason, lease.exit_status, requested, engine::why_ended(lease, plan)}, *lease.ended_at);
      if (program.progress.wish == Wish::remove && !program.is_up()) erase(key);
    }
  }
  for (const LeaseId id : plan.settled)
    if (const auto found = by_lease_.find(id); found != by_lease_.end()) rows_.wake(found->second, now);
}

void Guard::keeper_lost(LeaseId lease) {
  if (const auto found = by_lease_.find(lease); found != by_lease_.end()) rows_.wake(found->second, engine_.now());
}

// Its lease has ended before its program: the next start waits for the end of all its processes, and for its exit
// status while its keeper can still tell it.
bool Guard::lives_on(const core::Lease& lease) const {
  if (!lease.owner.process || core::find(engine_.state(), lease.id) == nullptr) return false;
  const bool untold = lease.owner.keeper && !lease.exit_status && engine_.programs().keeper_alive(lease.id);
  return untold || engine_.programs().inhabited(lease.id);
}

void Guard::ended(Program& program, const Ended& end, Time now) {
  const Key key{program.uid, program.tag};
  by_lease_.erase(program.progress.lease);
  end_start(program, end, now);
  rows_.change(key);
  wake_starts();
  log::info({.lease = {}, .program = fmt::format("{}/{}", program.user, printable(program.tag))}, "{}: {}",
            to_string(program.progress.phase), end.why);
}

// A start is over: the next one may begin.
void Guard::wake_starts() {
  for (const auto& [key, its] : orderings_) {
    const auto found = programs_.find(key);
    const bool waits = found != programs_.end() && found->second.progress.phase == Phase::starting &&
                       (!its.ordered || its.start != found->second.progress.start);
    if (waits) rows_.wake_by(key, engine_.now());
  }
}

void Guard::measured(Time now) {
  ceilings_.measured(now);
  shortages_.measured(engine_.state());
}

Time Guard::due(Time now) {
  Time next = std::min(ceilings_.due(now), remove_logs(now));
  for (core::Remark& remark : std::exchange(remarks_, {})) (void)engine_.decide(remark);
  std::vector<std::pair<Time, Key>> keys;  // the first to start has waited longest
  for (const Key& key : rows_.due(now))
    if (const auto found = programs_.find(key); found != programs_.end())
      keys.emplace_back(found->second.progress.since, key);
  if (!keys.empty()) count_starts(now);
  std::ranges::sort(keys);
  for (const auto& [since, key] : keys)
    if (const auto found = programs_.find(key); found != programs_.end())
      rows_.wake_by(key, supervise(found->second, now));
  return std::min(next, rows_.next());
}

void Guard::count_starts(Time now) {
  starts_ = 0;
  starts_of_.clear();
  for (const auto& [key, its] : orderings_) {
    const auto found = programs_.find(key);
    if (found == programs_.end() || found->second.progress.phase != Phase::starting) continue;
    if (its.ordered && its.start == found->second.progress.start && now - its.ordered_at < start_counts_for)
      ++starts_, ++starts_of_[key.first];
  }
}

Time Guard::remove_logs(Time now) {
  if (!all_known_) return Time::never();
  if (now < logs_due_) return logs_due_;
  LogNumbers known;
  for (const auto& [key, program] : programs_) known.insert(program.number);
  if (remove_forgotten_logs(options_.runs.log_dir, known, removed_logs_)) return logs_due_ = now + remove_logs_again;
  removed_logs_.clear();
  return logs_due_ = now + std::chrono::hours(24);
}

// Moves the program on. Returns when to look at it again.
Time Guard::supervise(Program& program, Time now) {
  const Key key{program.uid, program.tag};
  if (program.progress.wish == Wish::remove && !program.is_up()) {
    erase(key);
    return Time::never();
  }
  switch (program.progress.phase) {
    case Phase::starting: return start_keeper(program, now);
    case Phase::queued:
    case Phase::running: return check_lease(program, now);
    case Phase::backoff:
      if (program.progress.next_start > now)
        return keep_memory(program) ? program.progress.next_start
                                    : std::min<Time>(program.progress.next_start, now + look_for_keeper);
      guard::restart(program, now);
      rows_.change(key);
      return Time::never();
    default: return Time::never();
  }
}

// The end of a start that no decision brings: the last process of an ended lease has ended, or the lease was lost with
// the store.
Time Guard::check_lease(Program& program, Time now) {
  const core::Lease* lease = engine_.find(program.progress.lease);
  if (lease != nullptr && !lease->ended()) return runs_.watch_keeper(run_of(program), *lease, now);
  if (lease != nullptr && lives_on(*lease)) return now + look_for_keeper;
  const Progress& progress = program.progress;
  if (lease != nullptr && progress.ending)
    ended(program, {lease->end_reason, lease->exit_status, false, progress.why}, now);
  else ended(program, {core::EndReason::lost, {}, false, "its lease is gone"}, now);
  return Time::never();
}

// Keeps the memory for the next start. False: that was refused for now.
bool Guard::keep_memory(const Program& program) {
  const core::Lease* lease = core::find(engine_.state(), program.progress.lease);
  if (lease == nullptr || !lease->ended() || lease->kept_until) return true;
  const Time until = *lease->ended_at + kept_for;
  if (program.progress.next_start >= until || engine_.now() >= until) return true;
  return engine_.decide(core::Keep{lease->id, until}).has_value();
}

Time Guard::start_keeper(Program& program, Time now) {
  const Key key{program.uid, program.tag};
  using Step = engine::OrderStep;
  const engine::KeeperOrdering& earlier = orderings_[key];
  const bool is_ordered = earlier.ordered && earlier.start == program.progress.start;
  const bool is_full = starts_ >= most_starts || starts_of_[key.first] >= most_starts_of_user;
  if (is_full && !is_ordered) return now + look_for_keeper;
  switch (runs_.next_step(orderings_[key], program.progress.start, key, rows_)) {
    case Step::starts:
    case Step::away: return now + look_for_keeper;
    case Step::lost:
      ended(program, {core::EndReason::failed, {}, false, "its keeper ended before it asked for a lease"}, now);
      return Time::never();
    case Step::not_durable: return Time::never();
    case Step::order: ++starts_, ++starts_of_[key.first]; break;
  }
  const std::uint64_t number = program.number, start = program.progress.start;
  runs_.start(run_of(program), document(program), [this, key, number, start](const Result<ProcessRef>& started) {
    const auto found = programs_.find(key);
    if (found == programs_.end()) return;
    Program& mine = found->second;
    if (mine.number != number || mine.progress.start != start) return;
    rows_.wake(key, engine_.now());
    if (started) {
      orderings_[key].keeper = *started;
    } else if (mine.progress.phase == Phase::starting) {
      ended(mine, {core::EndReason::failed, {}, false, "its keeper could not be started: " + started.error().detail},
            engine_.now());
    }
  });
  return now + look_for_keeper;
}

// The newest start.
engine::Run Guard::run_of(const Program& program) const {
  return {.uid = program.uid,
          .user = program.user,
          .tag = program.tag,
          .kind = "program",
          .name = {{"tag", program.tag}, {"number", program.number}, {"start", program.progress.start}},
          .log = fmt::format("program-{}.log", program.number)};
}

json Guard::document(const Program& program) const {
  const engine::Run run = run_of(program);
  json document = runs_.document(run, program.manifest, program.manifest.environment);
  json& request = document["request"] = program.manifest.request;
  request["tag"] = program.tag;
  request["command"] = program.manifest.command;
  request["program"] = run.name;
  return document;
}

}  // namespace sublet::guard
