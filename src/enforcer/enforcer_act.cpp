// SPDX-License-Identifier: Apache-2.0
// The enforcer's acts: notices, and the way from SIGTERM to SIGKILL.
#include "enforcer/enforcer.h"

#include "base/log.h"
#include "base/text.h"
#include "machine/terminals.h"
#include "state/reconfigured.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace sublet::enforcer {
namespace {

using Kind = machine::UnleasedResult::Kind;

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

// A process that is being ended makes others wait until a pass shows that it is gone. Its descendants make nobody wait,
// nor does a process with less than half of the others' memory.
bool Enforcer::is_another_ended(const Verdict& verdict) const {
  return std::ranges::any_of(open_, [&](const auto& entry) {
    const Verdict& other = verdicts_.at(entry.second);
    const bool being_ended = other.stage != Stage::seen && other.stage != Stage::unkillable;
    const bool there = listed_.contains(entry.first) || unleased_.lives(entry.first);
    return being_ended && there && other.id != verdict.id && other.used().count >= verdict.used().count / 2;
  });
}

// `evident`: the actor has just found the evidence.
Circumstances Enforcer::circumstances(Verdict& verdict, Time now, bool evident) {
  const Policy policy = policy_for(verdict);
  const bool judged = policy == Policy::enforce && (verdict.stage == Stage::seen || verdict.stage == Stage::condemned);
  return {.now = now,
          .listed = listed_.contains(verdict.record.process) && now - listed_at_ <= options_.interval + late_pass,
          .gone = !unleased_.lives(verdict.record.process),
          .quiet = is_quiet(verdict, now),
          .another = judged && is_another_ended(verdict),
          .budget = !judged || kills_.empty() || !find_exhausted(kills_, kill_of(verdict, now)),
          .look_due = verdict.stage == Stage::seen && is_look_due(verdict, policy, now),
          .evident = evident,
          .linked = is_linked(verdict, now),
          .stored = verdict.stage != Stage::condemned || verdict_rows_.is_durable(verdict.id),
          .policy = policy};
}

// Why nothing is ended until an admin helps or the daemon recovers; "": nothing is in the way.
std::string Enforcer::why_halted() const {
  if (engine_.rules().safe_mode) return "nothing is ended in safe mode";
  if (const std::string& problem = engine_.machine().probe->problem(); !problem.empty())
    return fmt::format("nothing is ended while the driver cannot be read: {}", problem);
  for (const auto& [uuid, device] : engine_.state().devices.by_uuid)
    if ((device.lost || !device.problem.empty()) && !core::is_reconfigured(device))
      return fmt::format("nothing is ended while {} ({}) {}", device.reading.id(), uuid,
                         device.lost ? "is gone" : "cannot be read");
  return {};
}

std::string Enforcer::why_quiet(Time now) const {
  if (std::string why = why_halted(); !why.empty()) return why;
  if (now - engine_.clock().undisturbed_since() >= options_.start_grace) return {};
  return fmt::format("nothing is ended for {} after a start or a clock gap", format_duration(options_.start_grace));
}

// A clock gap in the grace of a process begins the grace anew.
bool Enforcer::is_quiet(const Verdict& verdict, Time now) const {
  const bool gap_in_grace =
      verdict.stage == Stage::terminating && engine_.clock().undisturbed_since() > verdict.act_at - options_.grace;
  if (gap_in_grace && now - engine_.clock().undisturbed_since() < options_.grace) return true;
  return !why_quiet(now).empty();
}

// A process above it, living or dead, may belong to a lease. This link only spares. After a restart of the daemon
// nobody knows the dead processes of a lease, so a link that was found once holds as long as its lease.
LeaseId Enforcer::link_of(const Verdict& verdict) const {
  if (const LeaseId lease = unleased_.lease_above(verdict.record.ancestry)) return lease;
  return core::find(engine_.state(), verdict.spared_for) != nullptr ? verdict.spared_for : LeaseId{};
}

bool Enforcer::is_linked(Verdict& verdict, Time now) {
  const LeaseId lease = link_of(verdict);
  if (lease == verdict.spared_for) return bool(lease);
  verdict.spared_for = lease;
  if (lease)
    verdict.note(now, "linked", fmt::format("a process above it belonged to {}, so it is spared", to_string(lease)));
  else verdict.count_anew(now, "unlinked", "the lease above it is gone");
  changed(verdict, true);
  return bool(lease);
}

void Enforcer::act(Verdict& verdict, Time now) {
  if (asked_.contains(verdict.id)) return;
  if (const Rule* approval = enforcer::approval_of(rules_, {verdict.record, verdict.user}, now)) {
    approved_.insert_or_assign(verdict.record.process, approval->id);
    return close(verdict, Outcome::approved, now, fmt::format("approval {}", approval->id));
  }
  if (take_policy(verdict, now)) changed(verdict, false);
  switch (next_move(verdict, circumstances(verdict, now, false))) {
    case Move::none: return;
    case Move::notice: return notify(verdict, now);
    case Move::look: return look(verdict, now);
    case Move::condemn: return condemn(verdict, now);
    case Move::term: return signal(verdict, SIGTERM);
    case Move::kill: return signal(verdict, SIGKILL);
    case Move::spare:
      if (!verdict.spared_for)
        verdict.note(now, "spared", fmt::format("the policy is {} now", to_string(policy_for(verdict))));
      if (verdict.signalled()) unleased_.close(verdict.id);
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
  const int told = machine::write_to_terminals(verdict.record.uid, "sublet: " + text);
  verdict.note(now, "notice",
               told == 0 ? "its owner has no terminal that takes messages"
                         : fmt::format("written to {} of its owner", counted(told, "terminal")));
  log::warn("{}: {}", verdict.user, text);
  changed(verdict, true);
}

void Enforcer::signal(Verdict& verdict, int signal) {
  asked_.insert(verdict.id);
  unleased_.end(
      verdict.id, verdict.record.process, signal, spared(verdict),
      [this, id = verdict.id, signal](const machine::UnleasedResult& result) { signalled(id, signal, result); });
}

void Enforcer::signalled(std::uint64_t id, int signal, const machine::UnleasedResult& result) {
  asked_.erase(id);
  news_ = true;
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
      // Nothing was sent. It is judged anew later, and others are not kept waiting.
      verdict.note(now, "spared", verdict.spared = result.why);
      schedule_look(verdict, result, now);
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
    add_kill(kills_, kill_of(verdict, now));
    enter(verdict, Stage::terminating);
  } else {
    verdict.act_at = now + unkillable_after;
    enter(verdict, Stage::killing);
  }
  next_pass_ = std::min(next_pass_, now + std::chrono::seconds(1));  // to see its end soon
  signalled_at_ = now;
}

void Enforcer::alarm(Verdict& verdict, Time now) {
  const auto exhausted = find_exhausted(kills_, kill_of(verdict, now));
  if (!exhausted) return;
  if (verdict.stage == Stage::condemned) enter(verdict, Stage::seen);
  const std::string reason = exhausted->sentence() + "; no more are";
  if (say(verdict, "alarm", reason, now))
    log::error("{}, although another one holds memory under no lease: {} (pid {})", reason,
               printable(verdict.record.name), verdict.record.process.pid);
}

// The sentence about the budget that spares the process now; "": none does.
std::string Enforcer::alarm_about(const Verdict& verdict, Time now) const {
  const Step* last = verdict.last_judgement();
  if (last == nullptr || last->what != "alarm") return {};
  if (verdict.stage != Stage::seen || verdict.policy != Policy::enforce || verdict.spared_for) return {};
  const auto exhausted = find_exhausted(kills_, kill_of(verdict, now));
  return exhausted ? exhausted->sentence() : std::string();
}

std::vector<engine::Warning> Enforcer::warnings(Time now) const {
  std::vector<engine::Warning> all;
  std::set<std::string> alarms;
  for (const auto& [process, id] : open_) alarms.insert(alarm_about(verdicts_.at(id), now));
  alarms.erase("");
  for (const std::string& alarm : alarms)
    all.push_back({"enforcer-alarm", alarm + ", and another one holds memory without a lease: no more are ended",
                   "stop the program or service that starts them, or approve them: sublet approve", now});
  const auto enforces = [](const Rule& rule) { return rule.policy == Policy::enforce; };
  if (options_.policy == Policy::enforce || std::ranges::any_of(rules_, enforces))
    if (const std::string why = why_halted(); !why.empty())
      all.push_back({"enforcer-halted", "processes without a lease: " + why,
                     "other warnings tell the cause; 'sublet verdicts' lists the processes", now});
  for (const auto& [process, id] : open_) {
    const Verdict& verdict = verdicts_.at(id);
    if (verdict.stage == Stage::unkillable)
      all.push_back(
          {"unkillable-process", summary(verdict), fmt::format("see: sublet verdicts {}", id), verdict.act_at});
  }
  return all;
}

}  // namespace sublet::enforcer
