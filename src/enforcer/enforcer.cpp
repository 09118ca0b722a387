// SPDX-License-Identifier: Apache-2.0
// The enforcer's records: which processes are seen, which rules there are, and what is stored.
#include "enforcer/enforcer.h"

#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "machine/account.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sublet::enforcer {
namespace {

constexpr const char* last_number = "number";  // kind of the row of the last number of a rule

bool is_replaced(const Rule& other, const Rule& rule) {
  return other.kind == rule.kind && other.kind == Rule::Kind::policy && other.subject == rule.subject;
}

}  // namespace

Enforcer::Enforcer(engine::Engine& engine, machine::Unleased& unleased, Options options)
    : engine_(engine),
      unleased_(unleased),
      options_(options),
      verdict_rows_(engine, "verdict_changed",
                    [this](std::uint64_t id) {
                      const auto found = verdicts_.find(id);
                      return found != verdicts_.end() ? to_row(found->second)
                                                      : store::CapabilityRow{"verdict", fmt::format("{}", id), ""};
                    }),
      rule_rows_(engine, "enforcement_changed", [this](const std::pair<std::string, std::uint64_t>& key) {
        if (key.first == last_number) return store::CapabilityRow{key.first, "rule", fmt::format("{}", last_rule_)};
        const auto found = std::ranges::find(rules_, key.second, &Rule::id);
        return found != rules_.end() ? to_row(*found)
                                     : store::CapabilityRow{key.first, fmt::format("{}", key.second), ""};
      }) {}

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

// While the account database does not answer, a rule that names a user may be missed, so nobody is ended.
bool Enforcer::may_miss_rule(const Verdict& verdict) const {
  const auto names_user = [](const Rule& rule) {
    return rule.subject.kind == Subject::Kind::user && !parse_number<std::uint32_t>(rule.subject.value);
  };
  return verdict.unnamed && std::ranges::any_of(rules_, names_user);
}

Policy Enforcer::policy_for(const Verdict& verdict) const {
  if (may_miss_rule(verdict)) return Policy::observe;
  return enforcer::policy_for(rules_, {verdict.record, verdict.user, verdict.draws}, options_.policy);
}

std::optional<Policy> Enforcer::policy_towards(ProcessRef process) const {
  auto record = unleased_.describe(process);
  if (!record) return std::nullopt;
  Verdict verdict;
  const auto name = machine::find_account_name(record->uid);
  verdict.unnamed = !name;
  verdict.user = name.value_or(std::to_string(record->uid));
  if (enforcer::approval_of(rules_, {*record, verdict.user}, engine_.now()) != nullptr) return std::nullopt;
  verdict.record = std::move(*record);
  return policy_for(verdict);
}

// Takes the policy that applies now into the record. True: it is another one.
bool Enforcer::take_policy(Verdict& verdict, Time now) {
  const Policy before = std::exchange(verdict.policy, policy_for(verdict));
  if (before == verdict.policy) return false;
  looks_.erase(verdict.id);                                        // the actor looks anew
  if (verdict.policy == Policy::enforce) verdict.noticed = false;  // an earlier notice told no end
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
    if (same(other)) rule_rows_.store({to_row(other).kind, other.id});
  std::erase_if(rules_, same);
  rule.id = ++last_rule_;
  // The row of a removed rule is gone, and its number is never used again.
  rule_rows_.store({last_number, 0});
  rule.at = engine_.now();
  rule_rows_.store({to_row(rule).kind, rule.id});
  rules_.push_back(std::move(rule));
  approved_.clear();
  news_ = true;
  return rules_.back();
}

Status Enforcer::remove(std::uint64_t id, Rule::Kind kind) {
  const auto found = std::ranges::find_if(rules_, [&](const Rule& rule) { return rule.id == id && rule.kind == kind; });
  const bool approval = kind == Rule::Kind::approval;
  if (found == rules_.end()) {
    return not_found(fmt::format("there is no {} {}", approval ? "approval" : "policy", id),
                     approval ? "sublet approve --ls lists them" : "sublet enforce ls lists them");
  }
  rule_rows_.store({to_row(*found).kind, id});
  rules_.erase(found);
  approved_.clear();
  news_ = true;
  return {};
}

// -------------------------------------------------------------------------------- rows

void Enforcer::forget() {
  for (const auto& [process, id] : open_) unleased_.let_go(process);
  verdicts_.clear(), open_.clear(), waiting_.clear(), approved_.clear(), rules_.clear();
  asked_.clear(), looks_.clear(), listed_.clear();
  kills_.clear(), verdict_rows_.clear(), rule_rows_.clear();
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
    } else if (row.kind == last_number && row.key == "rule") {
      last_rule_ = std::max(last_rule_, parse_number<std::uint64_t>(row.data).value_or(0));
    }
  }
  const bool rebooted = !rows.boot_id.empty() && rows.boot_id != engine_.options().boot_id;
  std::vector<std::uint64_t> open;
  std::vector<Kill> kills;
  for (const auto& [id, verdict] : verdicts_) {
    for (const Step& step : verdict.steps)
      if (step.what == "SIGTERM" && now - step.at < kill_window) kills.push_back(kill_of(verdict, step.at));
    if (verdict.open()) open.push_back(id);
  }
  for (const std::uint64_t id : open) {
    if (rebooted) close(verdicts_.at(id), Outcome::gone, now, "the machine was rebooted");
    else take_up(id, now);
  }
  std::ranges::sort(kills, {}, &Kill::at);
  for (Kill& kill : kills) add_kill(kills_, std::move(kill));
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

void Enforcer::changed(const Verdict& verdict, bool tell) {
  verdict_rows_.store(verdict.id);
  news_ = true;
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
  engine_.tell({"verdict", data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)});
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
  looks_.erase(verdict.id);
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
    verdict_rows_.store(entry->first);
    entry = verdicts_.erase(entry);
    --closed;
  }
}

}  // namespace sublet::enforcer
