// SPDX-License-Identifier: Apache-2.0
// The enforcer's records: which processes are seen, which rules there are, and what is stored.
#include "enforcer/enforcer.h"

#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "enforcer/ancestry.h"
#include "engine/account.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sublet::enforcer {
namespace {

// A process that is listed no more is forgotten after this number of good passes, since its memory may come back.
constexpr int passes_until_gone = 3;
constexpr Duration shortest_pass = std::chrono::seconds(1);

bool is_replaced(const Rule& other, const Rule& rule) {
  return other.kind == rule.kind && other.kind == Rule::Kind::policy && other.subject == rule.subject;
}

}  // namespace

Enforcer::Enforcer(engine::Engine& engine, engine::Unleased& unleased, Options options)
    : engine_(engine), unleased_(unleased), options_(options) {}

// -------------------------------------------------------------------------------- reading

const Verdict* Enforcer::verdict_of(std::int32_t pid) const {
  for (auto entry = verdicts_.rbegin(); entry != verdicts_.rend(); ++entry)
    if (entry->second.record.process.pid == pid) return &entry->second;
  return nullptr;
}

const Rule* Enforcer::approval_of(ProcessRef process) const {
  const auto found = approved_.find(process);
  if (found == approved_.end()) return nullptr;
  const auto rule = std::ranges::find(rules_, found->second, &Rule::id);
  return rule == rules_.end() ? nullptr : &*rule;
}

// The record tells when it was seen, and for how long: SIGTERM would have come with the third sighting.
std::vector<Preview> Enforcer::preview(Time since, const std::optional<Subject>& subject) const {
  std::vector<Preview> found;
  for (const auto& [id, verdict] : verdicts_) {
    const Time end = verdict.open() ? engine_.now() : verdict.closed_at;
    if (end < since || verdict.sightings < sightings_needed) continue;
    if (subject && !matches(*subject, {verdict.record, verdict.user})) continue;
    Preview preview{&verdict, verdict.opened_at + (sightings_needed - 1) * options_.interval, std::nullopt};
    if (verdict.last_seen >= preview.term_at + options_.grace) preview.kill_at = preview.term_at + options_.grace;
    found.push_back(preview);
  }
  return found;
}

// An account database that does not answer leaves the uid as the name. Then a rule for a user may be missed, so nobody
// is ended.
Policy Enforcer::policy_for(const Verdict& verdict) const {
  const bool unnamed = verdict.user == fmt::format("{}", verdict.record.uid);
  const auto names_user = [](const Rule& rule) {
    return rule.subject.kind == Subject::Kind::user && !parse_number<std::uint32_t>(rule.subject.value);
  };
  if (unnamed && std::ranges::any_of(rules_, names_user)) return Policy::observe;
  const Rule* rule = policy_of(rules_, {verdict.record, verdict.user});
  return rule != nullptr ? rule->policy : options_.policy;
}

// Takes the policy that applies now into the record. True: it is another one.
bool Enforcer::take_policy(Verdict& verdict, Time now) {
  const Policy before = std::exchange(verdict.policy, policy_for(verdict));
  if (before == verdict.policy) return false;
  if (!verdict.steps.empty()) verdict.note(now, "policy", std::string(to_string(verdict.policy)));
  return true;
}

// -------------------------------------------------------------------------------- requests

bool Enforcer::replaces(const Rule& rule) const {
  return std::ranges::any_of(rules_, [&](const Rule& other) { return is_replaced(other, rule); });
}

const Rule& Enforcer::add(Rule rule) {
  const auto same = [&](const Rule& other) { return is_replaced(other, rule); };
  for (const Rule& other : rules_)
    if (same(other)) changed_rows_.push_back({to_row(other).kind, fmt::format("{}", other.id), ""});
  std::erase_if(rules_, same);
  rule.id = ++last_rule_;
  // The row of a removed rule is gone, and its number is never used again.
  changed_rows_.push_back({"number", "rule", fmt::format("{}", last_rule_)});
  rule.at = engine_.now();
  changed_rows_.push_back(to_row(rule));
  rules_.push_back(std::move(rule));
  approved_.clear();
  engine_.wake_capabilities();
  return rules_.back();
}

Status Enforcer::remove(std::uint64_t id, Rule::Kind kind) {
  const auto found = std::ranges::find_if(rules_, [&](const Rule& rule) { return rule.id == id && rule.kind == kind; });
  const bool approval = kind == Rule::Kind::approval;
  if (found == rules_.end()) {
    return not_found(fmt::format("there is no {} {}", approval ? "approval" : "policy", id),
                     approval ? "sublet approve --ls lists them" : "sublet enforce ls lists them");
  }
  changed_rows_.push_back({to_row(*found).kind, fmt::format("{}", id), ""});
  rules_.erase(found);
  approved_.clear();
  engine_.wake_capabilities();
  return {};
}

// -------------------------------------------------------------------------------- rows

void Enforcer::forget() {
  for (const auto& [process, id] : open_) unleased_.let_go(process);
  verdicts_.clear(), open_.clear(), waiting_.clear(), approved_.clear(), rules_.clear();
  asked_.clear(), looked_at_.clear(), stored_.clear(), listed_.clear();
  kills_.clear(), alarms_.clear(), dirty_.clear(), changed_rows_.clear(), events_.clear();
}

void Enforcer::loaded(const store::Loaded& rows, Time now) {
  forget();
  next_pass_ = now;
  for (const store::CapabilityRow& row : rows.rows) {
    if (row.kind == "verdict") {
      auto verdict = verdict_from_row(row);
      last_verdict_ = std::max(last_verdict_, parse_number<std::uint64_t>(row.key).value_or(0));
      if (verdict) verdicts_.emplace(verdict->id, std::move(*verdict));
      else log::error("{}", verdict.error().detail);
    } else if (row.kind == "approval" || row.kind == "policy") {
      auto rule = rule_from_row(row);
      last_rule_ = std::max(last_rule_, parse_number<std::uint64_t>(row.key).value_or(0));
      if (rule) rules_.push_back(std::move(*rule));
      else log::error("{}", rule.error().detail);
    } else if (row.kind == "number" && row.key == "rule") {
      last_rule_ = std::max(last_rule_, parse_number<std::uint64_t>(row.data).value_or(0));
    }
  }
  const bool rebooted = !rows.boot_id.empty() && rows.boot_id != engine_.options().boot_id;
  std::vector<std::uint64_t> open;
  for (const auto& [id, verdict] : verdicts_) {
    const std::string unit = verdict.system_unit();
    for (const Step& step : verdict.steps)
      if (step.what == "SIGTERM" && now - step.at < kill_window)
        kills_.push_back({step.at, unit, verdict.record.uid, verdict.exe});
    if (verdict.open()) open.push_back(id);
  }
  for (const std::uint64_t id : open) {
    if (rebooted) close(verdicts_.at(id), Outcome::gone, now, "the machine was rebooted");
    else take_up(id, now);
  }
  std::ranges::sort(kills_, {}, &Kill::at);
}

// A verdict of an earlier run of the daemon goes on only with the same process, and a signal needs proof of that. A
// process that cannot be held for another reason, such as a lack of descriptors, is tried again.
void Enforcer::take_up(std::uint64_t id, Time now) {
  Verdict& verdict = verdicts_.at(id);
  const auto inode = unleased_.hold(verdict.record.process, verdict.inode);
  if (!inode && inode.error().code != Code::NotFound) {
    waiting_.emplace(verdict.record.process, id);
    return;
  }
  waiting_.erase(verdict.record.process);
  if (!inode) return close(verdict, verdict.signalled() ? Outcome::ended : Outcome::gone, now);
  open_.emplace(verdict.record.process, verdict.id);
  if (*inode != 0 && *inode == verdict.inode) return;
  if (verdict.stage == Stage::seen) return;
  verdict.sightings = 0;
  verdict.note(now, "restarted", "nothing proves that it is the same process as before a restart of the daemon");
  enter(verdict, Stage::seen);
}

engine::Rows Enforcer::take_rows() {
  engine::Rows rows;
  rows.rows = std::exchange(changed_rows_, {});
  for (const std::uint64_t id : std::exchange(dirty_, {})) {
    const auto found = verdicts_.find(id);
    if (found == verdicts_.end()) continue;
    rows.rows.push_back(to_row(found->second));
    if (const auto storing = stored_.find(id); storing != stored_.end()) storing->second.taken = true;
  }
  rows.events = std::exchange(events_, {});
  return rows;
}

void Enforcer::committed(std::uint64_t) {
  if (!stored_.empty()) engine_.wake_capabilities();
}

void Enforcer::changed(const Verdict& verdict, bool tell) {
  dirty_.insert(verdict.id);
  if (!tell) return;
  const nlohmann::json data{{"type", "verdict"},
                            {"at", format_rfc3339(engine_.now())},
                            {"verdict", verdict.id},
                            {"pid", verdict.record.process.pid},
                            {"user", verdict.user},
                            {"stage", to_string(verdict.stage)},
                            {"outcome", to_string(verdict.outcome)},
                            {"policy", to_string(verdict.policy)},
                            {"used_bytes", verdict.used().count},
                            {"text", summary(verdict)}};
  events_.push_back({"verdict", data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)});
}

void Enforcer::enter(Verdict& verdict, Stage stage) {
  verdict.stage = stage;
  changed(verdict, true);
}

void Enforcer::close(Verdict& verdict, Outcome outcome, Time now, std::string why) {
  verdict.outcome = outcome;
  verdict.closed_at = now;
  verdict.note(now, "closed", why.empty() ? std::string(to_string(outcome)) : std::move(why));
  if (verdict.signalled()) unleased_.close(verdict.id);
  enter(verdict, Stage::closed);
  open_.erase(verdict.record.process);
  unleased_.let_go(verdict.record.process);
  stored_.erase(verdict.id);
  looked_at_.erase(verdict.id);
  log::info("{}", summary(verdict));
  prune();
}

void Enforcer::prune() {
  std::size_t closed = verdicts_.size() - open_.size();
  for (auto entry = verdicts_.begin(); entry != verdicts_.end() && closed > options_.keep;) {
    if (entry->second.open()) {
      ++entry;
      continue;
    }
    changed_rows_.push_back({"verdict", fmt::format("{}", entry->first), ""});
    dirty_.erase(entry->first);
    entry = verdicts_.erase(entry);
    --closed;
  }
}

// -------------------------------------------------------------------------------- passes

void Enforcer::measured(Time) {
  Bytes unleased;
  Time newest;
  for (const auto& [uuid, device] : engine_.state().devices()) {
    unleased += device.unleased;
    if (device.read_at) newest = std::max(newest, *device.read_at);
  }
  drop_ = drop_ || unleased > unleased_before_ + core::reading_slack;
  unleased_before_ = unleased;
  last_reading_ = newest;
}

Time Enforcer::due(Time now) {
  if (drop_ && now - listed_at_ >= shortest_pass) next_pass_ = std::min(next_pass_, now);
  if (now >= next_pass_) {
    if (last_reading_ <= std::max(listed_at_, signalled_at_)) {
      engine_.take_snapshot();  // measured() and another call follow
      next_pass_ = now + shortest_pass;
      return next_pass_;
    }
    next_pass_ = now + options_.interval;
    drop_ = false;
    unleased_.open_sources(options_.accounting);
    for (const auto& [process, id] : std::map(waiting_)) take_up(id, now);
    pass(now);
  }
  Time next = next_pass_;
  std::vector<std::uint64_t> open;
  for (const auto& [process, id] : open_) open.push_back(id);
  std::ranges::sort(open);  // the oldest first
  for (const std::uint64_t id : open) {
    Verdict& verdict = verdicts_.at(id);
    act(verdict, now);  // may close it, and remove closed ones
    const auto still = verdicts_.find(id);
    if (still != verdicts_.end() && still->second.signalled() && still->second.act_at > now)
      next = std::min(next, still->second.act_at);
  }
  return next;
}

// The listed processes without a lease. `known`: all devices were read well; else nothing is concluded.
Enforcer::Listed Enforcer::list(bool& known, std::set<ProcessRef>& leased) const {
  Listed listed;
  known = !engine_.state().devices().empty() && engine_.probe().problem().empty();
  for (const auto& [uuid, device] : engine_.state().devices()) {
    if (!device.problem.empty() || device.lost || !device.read_at || *device.read_at <= listed_at_) {
      known = false;
      continue;
    }
    for (const core::ProcessUse& use : device.reading.processes) {
      if (use.lease) leased.insert(use.process);
      else if (use.process.start_ticks != 0 && use.used.value_or(Bytes{}) > Bytes{})
        listed[use.process].used[uuid] = *use.used;
    }
  }
  for (const ProcessRef process : leased) listed.erase(process);
  return listed;
}

void Enforcer::pass(Time now) {
  bool known = false;
  std::set<ProcessRef> leased;
  Listed listed = list(known, leased);
  if (!known) return;
  listed_at_ = last_reading_;
  listed_ = std::move(listed);
  std::erase_if(approved_, [this](const auto& entry) { return !listed_.contains(entry.first); });
  for (const auto& [process, found] : listed_) see(process, found, now);
  std::vector<std::uint64_t> open;
  for (const auto& [process, id] : open_)
    if (!listed_.contains(process)) open.push_back(id);
  for (const std::uint64_t id : open) missed(verdicts_.at(id), leased, now);
}

void Enforcer::see(ProcessRef process, const Found& found, Time now) {
  if (waiting_.contains(process)) return;
  const auto known = open_.find(process);
  auto record = unleased_.describe(process);
  if (!record) return;  // it has just ended
  const std::string user = engine::account_name(record->uid);
  if (const Rule* approval = enforcer::approval_of(rules_, {*record, user}, now)) {
    approved_.insert_or_assign(process, approval->id);
    if (known != open_.end())
      close(verdicts_.at(known->second), Outcome::approved, now, fmt::format("approval {}", approval->id));
    return;
  }
  approved_.erase(process);
  if (known == open_.end()) {
    const auto inode = unleased_.hold(process, 0);
    if (!inode) return;
    Verdict verdict;
    verdict.id = ++last_verdict_;
    verdict.record.process = process;
    verdict.inode = *inode;
    verdict.opened_at = now;
    open_.emplace(process, verdict.id);
    verdicts_.emplace(verdict.id, std::move(verdict));
  }
  Verdict& verdict = verdicts_.at(open_.at(process));
  // Facts that a process may change about itself count as they are now.
  see_ancestry(verdict, *record);
  verdict.record = std::move(*record);
  verdict.user = user;
  verdict.missed = 0;
  const bool first = verdict.sightings == 0;
  if (first || now - verdict.last_seen >= options_.interval / 2) {
    ++verdict.sightings;
    verdict.last_seen = now;
  }
  for (const auto& [device, used] : found.used) verdict.hold(now, device, used);
  const bool other = take_policy(verdict, now);
  if (first) verdict.note(now, "seen", fmt::format("it holds {} under no lease", format_size(verdict.used())));
  if (verdict.sightings <= sightings_needed || other) changed(verdict, first);
}

// Parents that have ended stay in the record. The sources are asked when the parents by the process table change.
void Enforcer::see_ancestry(Verdict& verdict, proc::ProcessRecord& record) {
  std::vector<ProcessRef> shown;
  for (const proc::Ancestor& each : record.ancestry) shown.push_back(each.process);
  record.ancestry = keep_ancestry(verdict.record.ancestry, record.ancestry);
  if (record.ancestry != verdict.record.ancestry) changed(verdict, false);
  record.missing = std::move(verdict.record.missing);
  if (verdict.shown == shown) return;
  verdict.shown = std::move(shown);
  unleased_.trace(record.process, [this, id = verdict.id](const engine::Parents& parents) { traced(id, parents); });
}

void Enforcer::traced(std::uint64_t id, const engine::Parents& parents) {
  const auto found = verdicts_.find(id);
  if (found == verdicts_.end()) return;
  Verdict& verdict = found->second;
  if (!parents.asked) {
    verdict.shown.reset();  // the next pass asks again
    return;
  }
  bool taken = false;
  proc::ProcessRecord& record = verdict.record;
  Ancestry merged = merge_ancestry(record.ancestry, parents.ancestry, taken);
  if (!taken || (merged == record.ancestry && parents.missing == record.missing)) return;
  record.ancestry = std::move(merged);
  record.missing = parents.missing;
  changed(verdict, false);
  engine_.wake_capabilities();
}

void Enforcer::missed(Verdict& verdict, const std::set<ProcessRef>& leased, Time now) {
  const ProcessRef process = verdict.record.process;
  if (leased.contains(process)) return close(verdict, Outcome::leased, now);
  if (unleased_.lives(process)) {
    // It lives and holds nothing: after some time nothing is to be explained, and nobody is to be ended.
    if (++verdict.missed >= passes_until_gone) close(verdict, Outcome::gone, now);
    return;
  }
  if (!verdict.signalled()) return close(verdict, Outcome::gone, now);
  if (verdict.stage != Stage::terminating || verdict.descendants == 0) close(verdict, Outcome::ended, now);
}

}  // namespace sublet::enforcer
