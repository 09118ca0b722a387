// SPDX-License-Identifier: Apache-2.0
// The enforcer's acts: notices, and the way from SIGTERM to SIGKILL.
#include "enforcer/enforcer.h"

#include "base/log.h"
#include "base/text.h"
#include "engine/terminals.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace sublet::enforcer {
namespace {

using Kind = engine::UnleasedResult::Kind;

constexpr int most_kills = 3;  // in `kill_window`, for a unit or for one user's executable

std::string place_of(const std::string& unit, const std::string& user, const std::string& exe) {
  return unit.empty() ? fmt::format("{} of user {}", exe.empty() ? "programs" : exe, user)
                      : fmt::format("unit {}", unit);
}

// A pass may be this much late. A list that is older proves nothing: the driver does not answer, or with old figures.
constexpr Duration late_pass = std::chrono::seconds(2);

// "1 process", "3 processes".
std::string counted(int number, std::string_view noun) {
  const std::string_view ending = number == 1 ? "" : noun.ends_with('s') ? "es" : "s";
  return fmt::format("{} {}{}", number, noun, ending);
}

std::string advice(const Verdict& verdict) {
  return fmt::format("give it a lease: sublet hold --pid {} --vram {}M", verdict.record.process.pid,
                     verdict.used().count / MiB.count + 1);
}

}  // namespace

Circumstances Enforcer::circumstances(Verdict& verdict, Time now) {
  const auto stored = stored_.find(verdict.id);
  const bool another = std::ranges::any_of(verdicts_, [&](const auto& entry) {
    const Verdict& other = entry.second;
    const bool being_ended = other.stage != Stage::seen && other.stage != Stage::unkillable;
    return other.id != verdict.id && other.open() && (being_ended || asked_.contains(other.id));
  });
  return {.now = now,
          .listed = listed_.contains(verdict.record.process) && now - listed_at_ <= options_.interval + late_pass,
          .gone = !unleased_.lives(verdict.record.process),
          .quiet = is_quiet(verdict, now),
          .another = another,
          .budget = has_budget(verdict, now),
          .linked = is_linked(verdict, now),
          .stored = stored == stored_.end() || (stored->second.batch != 0 && engine_.is_durable(stored->second.batch)),
          .policy = policy_for(verdict)};
}

// Nothing is ended now: after a start or a clock gap, in safe mode, or while a device cannot be read. A clock gap in
// the grace of a process begins the grace anew.
bool Enforcer::is_quiet(const Verdict& verdict, Time now) const {
  const bool gap_in_grace =
      verdict.stage == Stage::terminating && engine_.undisturbed_since() > verdict.act_at - options_.grace;
  const Duration quiet = gap_in_grace ? std::max(quiet_time, options_.grace) : quiet_time;
  if (now - engine_.undisturbed_since() < quiet || engine_.rules().safe_mode || !engine_.probe().problem().empty())
    return true;
  return std::ranges::any_of(engine_.state().devices(),
                             [](const auto& entry) { return !entry.second.problem.empty() || entry.second.lost; });
}

// A process above it, living or dead, may belong to a lease. This link only spares. After a restart of the daemon
// nobody knows the dead processes of a lease, so a link that was found once holds as long as its lease.
LeaseId Enforcer::link_of(const Verdict& verdict) const {
  if (const LeaseId lease = unleased_.lease_above(verdict.record.ancestry)) return lease;
  return engine_.state().find(verdict.spared_for) != nullptr ? verdict.spared_for : LeaseId{};
}

bool Enforcer::is_linked(Verdict& verdict, Time now) {
  const LeaseId lease = link_of(verdict);
  if (lease == verdict.spared_for) return bool(lease);
  verdict.spared_for = lease;
  verdict.note(now, lease ? "linked" : "unlinked",
               lease ? fmt::format("a process above it belonged to {}, so it is spared", to_string(lease))
                     : "the lease above it is gone");
  changed(verdict, true);
  return bool(lease);
}

// Listed processes that are no offenders, that a link spares, or whose policy ends nobody. They may be descendants of
// one that is ended.
std::vector<ProcessRef> Enforcer::spared(const Verdict& verdict) const {
  std::vector<ProcessRef> spare;
  for (const auto& [process, found] : listed_) {
    if (process == verdict.record.process) continue;
    const auto open = open_.find(process);
    const Verdict* other = open == open_.end() ? nullptr : &verdicts_.at(open->second);
    if (other == nullptr || link_of(*other) || policy_for(*other) != Policy::enforce) spare.push_back(process);
  }
  return spare;
}

void Enforcer::act(Verdict& verdict, Time now) {
  if (asked_.contains(verdict.id)) return;
  if (const Rule* approval = enforcer::approval_of(rules_, {verdict.record, verdict.user}, now)) {
    approved_.insert_or_assign(verdict.record.process, approval->id);
    return close(verdict, Outcome::approved, now, fmt::format("approval {}", approval->id));
  }
  if (take_policy(verdict, now)) changed(verdict, false);
  if (const auto stored = stored_.find(verdict.id); stored != stored_.end() && stored->second.taken)
    if (stored->second.batch == 0) stored->second.batch = engine_.intended();
  switch (next_move(verdict, circumstances(verdict, now))) {
    case Move::none: return;
    case Move::notice: return notify(verdict, now);
    case Move::look: return look(verdict, now);
    case Move::term: return signal(verdict, SIGTERM);
    case Move::kill: return signal(verdict, SIGKILL);
    case Move::spare:
      if (!verdict.spared_for)
        verdict.note(now, "spared", fmt::format("the policy is {} now", to_string(policy_for(verdict))));
      if (verdict.signalled()) unleased_.close(verdict.id);
      stored_.erase(verdict.id);
      return enter(verdict, Stage::seen);
    case Move::alarm: return alarm(verdict, now);
    case Move::give_up:
      verdict.note(now, "unkillable", "it did not end after SIGKILL");
      log::error("{}", summary(verdict));
      return enter(verdict, Stage::unkillable);
  }
}

void Enforcer::notify(Verdict& verdict, Time now) {
  verdict.noticed = true;
  std::string text =
      fmt::format("Your program {} (pid {}) holds {} of GPU memory without a lease.", printable(verdict.record.name),
                  verdict.record.process.pid, format_size(verdict.used()));
  if (verdict.policy == Policy::enforce)
    text += fmt::format(" It will be ended: SIGTERM soon, SIGKILL {} later.", format_duration(options_.grace));
  else text += fmt::format(" To {}.", advice(verdict));
  const int told = engine::write_to_terminals(verdict.record.uid, "sublet: " + text);
  verdict.note(now, "notice",
               told == 0 ? "its owner has no terminal that takes messages"
                         : fmt::format("written to {} of its owner", counted(told, "terminal")));
  log::warn("{}: {}", verdict.user, text);
  changed(verdict, true);
  engine_.wake_capabilities();
}

// The evidence of the kernel comes before the verdict, and the verdict is stored before the first signal.
void Enforcer::look(Verdict& verdict, Time now) {
  if (const auto last = looked_at_.find(verdict.id); last != looked_at_.end() && now - last->second < options_.interval)
    return;
  looked_at_[verdict.id] = now;
  asked_.insert(verdict.id);
  unleased_.look(verdict.record.process,
                 [this, id = verdict.id](const engine::UnleasedResult& result) { looked(id, result); });
}

void Enforcer::looked(std::uint64_t id, const engine::UnleasedResult& result) {
  asked_.erase(id);
  const auto found = verdicts_.find(id);
  if (found == verdicts_.end() || !found->second.open() || found->second.stage != Stage::seen) return;
  Verdict& verdict = found->second;
  const Time now = engine_.now();
  if (result.kind == Kind::gone) return close(verdict, Outcome::gone, now);
  verdict.device_file = result.device_file;
  verdict.mapping = result.mapping;
  if (!result.exe.empty()) verdict.exe = printable(result.exe);
  if (result.kind != Kind::done) {
    verdict.note(now, "spared", result.why);
    return changed(verdict, true);
  }
  verdict.note(now, "condemned",
               fmt::format("the driver lists it, and it has {}",
                           result.mapping ? "memory of the GPU mapped" : "a device file of the GPU open"));
  stored_[id] = {};
  enter(verdict, Stage::condemned);
  engine_.wake_capabilities();
}

void Enforcer::signal(Verdict& verdict, int signal) {
  asked_.insert(verdict.id);
  unleased_.end(
      verdict.id, verdict.record.process, signal, spared(verdict),
      [this, id = verdict.id, signal](const engine::UnleasedResult& result) { signalled(id, signal, result); });
}

void Enforcer::signalled(std::uint64_t id, int signal, const engine::UnleasedResult& result) {
  asked_.erase(id);
  const auto found = verdicts_.find(id);
  if (found == verdicts_.end() || !found->second.open()) return;
  Verdict& verdict = found->second;
  const Time now = engine_.now();
  const char* what = signal == SIGTERM ? "SIGTERM" : "SIGKILL";
  switch (result.kind) {
    case Kind::gone: return close(verdict, verdict.signalled() ? Outcome::ended : Outcome::gone, now);
    case Kind::no_actor:
      if (verdict.stage == Stage::terminating) {
        verdict.act_at = now + kill_again;
        return;
      }
      [[fallthrough]];
    case Kind::spared:
      // Nothing was sent. It is judged anew, and others are not kept waiting.
      verdict.note(now, "spared", result.why);
      stored_.erase(id);
      if (verdict.signalled()) unleased_.close(id);
      if (!unleased_.lives(verdict.record.process)) return close(verdict, Outcome::ended, now);
      return enter(verdict, Stage::seen);
    case Kind::done:
    case Kind::uncertain: break;
  }
  verdict.note(now, what,
               result.kind == Kind::uncertain
                   ? "the actor was lost with the order"
                   : fmt::format("sent to {}{}", counted(result.sent, "process"),
                                 result.spared_descendants == 0
                                     ? ""
                                     : fmt::format("; {} spared", counted(result.spared_descendants, "descendant"))));
  log::warn("{} was sent to {} (pid {}, {}), which holds memory under no lease: verdict {}", what,
            printable(verdict.record.name), verdict.record.process.pid, verdict.user, id);
  if (signal == SIGTERM) {
    verdict.descendants = std::max(0, result.sent - 1);
    verdict.act_at = now + options_.grace;
    while (!kills_.empty() && now - kills_.front().at >= kill_window) kills_.pop_front();
    kills_.push_back({now, verdict.system_unit(), verdict.record.uid, verdict.exe});
    enter(verdict, Stage::terminating);
  } else {
    verdict.act_at = now + unkillable_after;
    enter(verdict, Stage::killing);
  }
  next_pass_ = std::min(next_pass_, now + std::chrono::seconds(1));  // to see its end soon
  signalled_at_ = now;
  engine_.wake_capabilities();
}

// A program that is started again and again is not killed without end.
bool Enforcer::has_budget(const Verdict& verdict, Time now) const {
  const std::string unit = verdict.system_unit();
  const auto counts = [&](const Kill& kill) {
    if (now - kill.at >= kill_window) return false;
    return unit.empty() ? kill.uid == verdict.record.uid && kill.exe == verdict.exe : kill.unit == unit;
  };
  return std::ranges::count_if(kills_, counts) < most_kills;
}

void Enforcer::alarm(Verdict& verdict, Time now) {
  const std::string place = place_of(verdict.system_unit(), verdict.user, verdict.exe);
  Time& since = alarms_[place];
  const bool begins = since == Time{} || now - since >= kill_window;
  if (begins) since = now;
  if (verdict.stage == Stage::condemned) {
    stored_.erase(verdict.id);
    enter(verdict, Stage::seen);
  }
  if (!begins) return;
  verdict.note(now, "alarm",
               fmt::format("{} processes of {} were ended within an hour; no more are", most_kills, place));
  log::error(
      "{} processes of {} were ended within an hour, and it holds memory under no lease again: no more are ended",
      most_kills, place);
  changed(verdict, true);
}

std::vector<engine::Warning> Enforcer::warnings(Time now) const {
  std::vector<engine::Warning> all;
  for (const auto& [place, since] : alarms_) {
    if (now - since >= kill_window) continue;
    all.push_back({"enforcer-alarm",
                   fmt::format("{} is started again without a lease: {} of its processes were ended within an hour",
                               place, most_kills),
                   "stop its service, or approve it: sublet approve", since});
  }
  for (const auto& [process, id] : open_) {
    const Verdict& verdict = verdicts_.at(id);
    if (verdict.stage == Stage::unkillable)
      all.push_back(
          {"unkillable-process", summary(verdict), fmt::format("see: sublet verdicts {}", id), verdict.act_at});
  }
  return all;
}

}  // namespace sublet::enforcer
