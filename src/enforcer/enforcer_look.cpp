// SPDX-License-Identifier: Apache-2.0
// The enforcer's looks: the evidence of the actor, and what spares a process. A look sends nothing.
#include "enforcer/enforcer.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace sublet::enforcer {
namespace {

using Kind = machine::UnleasedResult::Kind;

constexpr Duration longest_wait = std::chrono::hours(1);  // between two looks at a process that is spared

bool is_above(const Verdict& verdict, ProcessRef process) {
  return std::ranges::any_of(verdict.record.ancestry,
                             [&](const proc::Ancestor& each) { return !each.dead && each.process == process; });
}

}  // namespace

// Whether the end of `verdict` must spare the listed process and all below it: it is no offender, a link spares it, or
// its policy ends nobody. A terminal that only draws does not spare the processes below it. Under another policy than
// enforce, all are judged as if they had that policy.
bool Enforcer::must_spare(const Verdict& verdict, ProcessRef process) const {
  const auto open = open_.find(process);
  if (open == open_.end()) return true;
  const Verdict& other = verdicts_.at(open->second);
  if (link_of(other)) return true;
  const bool all_end = policy_for(verdict) != Policy::enforce;
  if (!other.draws) return !all_end && policy_for(other) != Policy::enforce;
  const Suspect computing{other.record, other.user};
  const bool would_end = all_end || enforcer::policy_for(rules_, computing, options_.policy) == Policy::enforce;
  return policy_for(other) != Policy::enforce && !(would_end && is_above(verdict, process));
}

// Listed processes to spare. They may be descendants of the one that is ended.
std::vector<ProcessRef> Enforcer::spared(const Verdict& verdict) const {
  std::vector<ProcessRef> spare;
  for (const auto& [process, found] : listed_)
    if (process != verdict.record.process && must_spare(verdict, process)) spare.push_back(process);
  return spare;
}

// Why it is spared without a look: its user has no name yet, or a process above it is spared with all below. "": it is
// not.
std::string Enforcer::spared_without_look(const Verdict& verdict) const {
  if (may_miss_rule(verdict))
    return fmt::format("the account database does not tell the name of user {}", verdict.user);
  for (const proc::Ancestor& above : verdict.record.ancestry)
    if (!above.dead && listed_.contains(above.process) && must_spare(verdict, above.process))
      return fmt::format("{} (pid {}) above it may hold memory", above.name.empty() ? "a process" : above.name,
                         above.process.pid);
  return {};
}

bool Enforcer::is_look_due(const Verdict& verdict, Policy policy, Time now) const {
  // One look at a time: a process can keep the reader of its files for seconds.
  const auto is_look = [this](std::uint64_t id) {
    const auto asked = verdicts_.find(id);
    return asked != verdicts_.end() && asked->second.stage == Stage::seen;
  };
  if (std::ranges::any_of(asked_, is_look)) return false;
  const auto last = looks_.find(verdict.id);
  if (last == looks_.end()) return true;
  const Look& look = last->second;
  const auto facts = [](const auto& of) { return std::tie(of.uid, of.name, of.cgroup); };
  const bool other = facts(look) != facts(verdict.record);  // it may execute another file
  if (policy == Policy::enforce) return other || now >= look.again;
  return (other || !look.evident) && now >= look.again;
}

void Enforcer::look(Verdict& verdict, Time now) {
  if (std::string why = spared_without_look(verdict); !why.empty()) {
    answered(verdict, {.kind = Kind::spared, .why = std::move(why)}, now);
    looks_[verdict.id].again = now + options_.interval;  // the answer cost nothing
    return;
  }
  asked_.insert(verdict.id);
  unleased_.look(verdict.record.process,
                 [this, id = verdict.id](const machine::UnleasedResult& result) { looked(id, result); });
}

void Enforcer::looked(std::uint64_t id, const machine::UnleasedResult& result) {
  asked_.erase(id);
  news_ = true;  // others wait for their look
  engine_.call_capabilities();
  const auto found = verdicts_.find(id);
  if (found == verdicts_.end() || !found->second.open() || found->second.stage != Stage::seen) return;
  Verdict& verdict = found->second;
  const Time now = engine_.now();
  if (result.kind == Kind::gone) return close(verdict, Outcome::gone, now);
  if (result.kind != Kind::no_actor) {
    const auto facts = [&verdict] { return std::tuple(verdict.looked, verdict.device_file, verdict.mapping); };
    const auto before = facts();
    verdict.looked = true;
    verdict.device_file = result.device_file;
    verdict.mapping = result.mapping;
    const std::string exe = result.exe.empty() ? verdict.exe : printable(result.exe);
    if (std::exchange(verdict.exe, exe) != exe || before != facts()) changed(verdict, false);
  }
  answered(verdict, result, now);
}

// The evidence of the kernel comes before the verdict, and the verdict is stored before the first signal.
void Enforcer::answered(Verdict& verdict, const machine::UnleasedResult& result, Time now) {
  schedule_look(verdict, result, now);
  const std::string why = result.kind == Kind::done ? std::string() : result.why;
  if (std::exchange(verdict.spared, why) != why) changed(verdict, false);
  if (!why.empty()) {
    say(verdict, "spared", why, now);
    return;
  }
  Move move = next_move(verdict, circumstances(verdict, now, true));
  if (move == Move::notice) {
    notify(verdict, now);
    move = next_move(verdict, circumstances(verdict, now, true));
  }
  if (move == Move::condemn) condemn(verdict, now);
  else if (move == Move::alarm) alarm(verdict, now);
}

// The answer about a protected process holds for long. Other answers may change with time. A process that would only be
// ended by another policy may change its name at will, so its looks become rare too.
void Enforcer::schedule_look(const Verdict& verdict, const machine::UnleasedResult& result, Time now) {
  Look& look = looks_[verdict.id];
  const bool waits =
      result.kind == Kind::spared || (result.kind == Kind::done && policy_for(verdict) != Policy::enforce);
  if (!waits) look.wait = options_.interval;
  else if (result.lasting) look.wait = longest_wait;
  else look.wait = std::min(std::max(options_.interval, 2 * look.wait), longest_wait);
  look.again = now + look.wait;
  look.evident = result.kind == Kind::done;
  look.uid = verdict.record.uid;
  look.name = verdict.record.name;
  look.cgroup = verdict.record.cgroup;
}

void Enforcer::condemn(Verdict& verdict, Time now) {
  verdict.note(now, "condemned",
               fmt::format("the driver lists it, and it has {}",
                           verdict.mapping ? "memory of the GPU mapped" : "a device file of the GPU open"));
  enter(verdict, Stage::condemned);
}

// The same judgement again is no step and no event. Returns whether it is another one.
bool Enforcer::say(Verdict& verdict, const char* what, const std::string& why, Time now) {
  const Step* last = verdict.last_judgement();
  const bool said = last != nullptr && last->what == what && last->result == why;
  if (said || policy_for(verdict) != Policy::enforce) return false;
  verdict.note(now, what, why);
  changed(verdict, true);
  return true;
}

// Why the policy enforce would not end it now, or would not have ended it; "": it would. `kills`: the ends so far, and
// those that come before.
std::string Enforcer::why_not_ended(const Verdict& verdict, const std::deque<Kill>& kills, Time now) const {
  if (const LeaseId lease = verdict.open() ? link_of(verdict) : verdict.spared_for)
    return fmt::format("a process above it belonged to {}", to_string(lease));
  const Rule* rule = policy_of(rules_, {verdict.record, verdict.user});
  if (verdict.draws && (rule == nullptr || !rule->graphics)) return "it only draws";
  if (verdict.signalled() || verdict.outcome == Outcome::ended) return {};
  if (verdict.outcome == Outcome::approved) return "it was approved";
  if (verdict.outcome == Outcome::leased) return "it got a lease";
  if (!verdict.spared.empty()) return verdict.spared;
  if (verdict.open()) {
    if (std::string why = spared_without_look(verdict); !why.empty()) return why;
    if (std::string why = why_quiet(now); !why.empty()) return why;
  }
  if (!verdict.looked) return "the actor has not looked at it";
  const auto exhausted = verdict.open() ? find_exhausted(kills, kill_of(verdict, now)) : std::nullopt;
  return exhausted ? exhausted->sentence() : std::string();
}

// The record tells when it was seen, and for how long: SIGTERM would have come with the third sighting. Open verdicts
// are ended in turn, and each end counts for the next.
std::vector<Preview> Enforcer::preview(Time since, const std::optional<Subject>& subject) const {
  const Time now = engine_.now();
  const auto is_meant = [&](const Verdict& verdict) {
    return verdict.sightings >= sightings_needed && (!subject || matches(*subject, {verdict.record, verdict.user}));
  };
  std::map<std::uint64_t, std::string> reasons;  // of the open ones
  std::deque<Kill> kills = kills_;
  for (const std::uint64_t id : largest_first()) {
    const Verdict& verdict = verdicts_.at(id);
    if (!is_meant(verdict) && policy_for(verdict) != Policy::enforce) continue;
    reasons[id] = why_not_ended(verdict, kills, now);
    if (reasons[id].empty() && !verdict.signalled()) add_kill(kills, kill_of(verdict, now));
  }
  std::vector<Preview> found;
  for (const auto& [id, verdict] : verdicts_) {
    if (!is_meant(verdict) || (verdict.open() ? now : verdict.closed_at) < since) continue;
    Preview preview{&verdict, verdict.counted_from() + (sightings_needed - 1) * options_.interval, std::nullopt,
                    verdict.open() ? reasons.at(id) : why_not_ended(verdict, kills, now)};
    if (verdict.last_seen >= preview.term_at + options_.grace) preview.kill_at = preview.term_at + options_.grace;
    found.push_back(std::move(preview));
  }
  return found;
}

}  // namespace sublet::enforcer
