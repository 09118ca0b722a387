// SPDX-License-Identifier: Apache-2.0
#include "enforcer/verdict.h"

#include "base/number.h"
#include "base/text.h"
#include "base/words.h"
#include "store/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace sublet::proc {

static std::optional<ParentSource> parse_source(std::string_view text) {
  for (int each = 0; each <= static_cast<int>(ParentSource::leader); ++each)
    if (to_string(static_cast<ParentSource>(each)) == text) return static_cast<ParentSource>(each);
  return std::nullopt;
}

void fields(auto& visit, store::Like<Ancestor> auto& ancestor) {
  visit("process", ancestor.process);
  visit("uid", ancestor.uid);
  visit("name", ancestor.name);
  visit.word("source", ancestor.source, parse_source);
  visit("certain", ancestor.certain);
  visit("dead", ancestor.dead);
  visit("ended", ancestor.ended);
}

void fields(auto& visit, store::Like<ProcessRecord> auto& record) {
  visit("process", record.process);
  visit("uid", record.uid);
  visit("name", record.name);
  visit("command", record.command);
  visit("cgroup", record.cgroup);
  visit("unit", record.unit);
  visit("system_unit", record.system_unit);
  visit("container", record.container);
  visit("ancestry", record.ancestry);
  visit("missing", record.missing);
}

}  // namespace sublet::proc

namespace sublet::enforcer {
namespace {

using nlohmann::json;

constexpr Words<Stage, 6> stages{{{Stage::seen, "seen"},
                                  {Stage::condemned, "condemned"},
                                  {Stage::terminating, "terminating"},
                                  {Stage::killing, "killing"},
                                  {Stage::unkillable, "unkillable"},
                                  {Stage::closed, "closed"}}};
constexpr Words<Outcome, 5> outcomes{{{Outcome::open, "open"},
                                      {Outcome::gone, "gone"},
                                      {Outcome::leased, "leased"},
                                      {Outcome::approved, "approved"},
                                      {Outcome::ended, "ended"}}};

std::optional<Stage> parse_stage(std::string_view text) { return value_of(stages, text); }
std::optional<Outcome> parse_outcome(std::string_view text) { return value_of(outcomes, text); }

json or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

json describe(const proc::Ancestor& ancestor) {
  return {{"pid", ancestor.process.pid},
          {"uid", ancestor.uid == proc::unknown_uid ? json(nullptr) : json(ancestor.uid)},
          {"name", or_null(ancestor.name)},
          {"source", proc::to_string(ancestor.source)},
          {"certain", ancestor.certain},
          {"ended", ancestor.dead},
          {"ended_at", ancestor.ended == Time{} ? json(nullptr) : json(format_rfc3339(ancestor.ended))}};
}

// Under the policy enforce: why it is not ended; "": nothing spares it.
std::string why_spared(const Verdict& verdict) {
  if (verdict.policy != Policy::enforce) return {};
  const Step* last = verdict.last_judgement();
  return verdict.spared.empty() && last != nullptr && last->what == "alarm" ? last->result : verdict.spared;
}

}  // namespace

std::string_view to_string(Stage stage) { return word_of(stages, stage); }
std::string_view to_string(Outcome outcome) { return word_of(outcomes, outcome); }

Bytes Verdict::used() const {
  std::map<std::string_view, Bytes> last;
  for (const Holding& each : holdings) last[each.device] = each.used;
  Bytes sum;
  for (const auto& [device, bytes] : last) sum += bytes;
  return sum;
}

void Verdict::note(Time at, std::string what, std::string result) {
  if (steps.size() >= most_steps) steps.erase(steps.begin() + first_steps);
  steps.push_back({at, std::move(what), std::move(result)});
}

void Verdict::count_anew(Time at, std::string what, std::string result) {
  sightings = std::min(sightings, 1);
  note(at, std::move(what), std::move(result));
}

Time Verdict::counted_from() const {
  const auto begins = [](const Step& step) {
    return step.what == "seen" || step.what == "computes" || step.what == "unlinked";
  };
  const auto last = std::find_if(steps.rbegin(), steps.rend(), begins);
  return last == steps.rend() ? opened_at : last->at;
}

const Step* Verdict::last_judgement() const {
  const auto judges = [](const Step& step) {
    return step.what == "spared" || step.what == "alarm" || step.what == "condemned";
  };
  const auto last = std::find_if(steps.rbegin(), steps.rend(), judges);
  return last == steps.rend() ? nullptr : &*last;
}

void Verdict::hold(Time at, const std::string& device, Bytes used) {
  const auto last = std::find_if(holdings.rbegin(), holdings.rend(),
                                 [&](const Holding& holding) { return holding.device == device; });
  if (last != holdings.rend() && last->used == used) return;
  holdings.push_back({at, device, used});
  if (holdings.size() > most_holdings) holdings.erase(holdings.begin() + 1);  // the first stays
}

void Verdict::hold_all(Time at, const std::map<std::string, Bytes>& used) {
  std::set<std::string> left;
  for (const Holding& each : holdings)
    if (!used.contains(each.device)) left.insert(each.device);
  for (const std::string& device : left) hold(at, device, Bytes{});
  for (const auto& [device, bytes] : used) hold(at, device, bytes);
}

void fields(auto& visit, store::Like<Step> auto& step) {
  visit("at", step.at);
  visit("what", step.what);
  visit("result", step.result);
}

void fields(auto& visit, store::Like<Holding> auto& holding) {
  visit("at", holding.at);
  visit("device", holding.device);
  visit("used", holding.used);
}

void fields(auto& visit, store::Like<Verdict> auto& verdict) {
  visit("record", verdict.record);
  visit("inode", verdict.inode);
  visit("user", verdict.user);
  visit("exe", verdict.exe);
  visit("device_file", verdict.device_file);
  visit("mapping", verdict.mapping);
  visit("draws", verdict.draws);
  visit("looked", verdict.looked);
  visit("spared", verdict.spared);
  visit("opened", verdict.opened_at);
  visit("seen", verdict.last_seen);
  visit("closed", verdict.closed_at);
  visit("sightings", verdict.sightings);
  visit.word("policy", verdict.policy, parse_policy);
  visit.word("stage", verdict.stage, parse_stage);
  visit.word("outcome", verdict.outcome, parse_outcome);
  visit("noticed", verdict.noticed);
  visit("spared_for", verdict.spared_for);
  visit("descendants", verdict.descendants);
  visit("act_at", verdict.act_at);
  visit("holdings", verdict.holdings);
  visit("steps", verdict.steps);
}

store::CapabilityRow to_row(const Verdict& verdict) {
  return store::row_of("verdict", fmt::format("{}", verdict.id), verdict);
}

Result<Verdict> verdict_from_row(const store::CapabilityRow& row) {
  const auto id = parse_number<std::uint64_t>(row.key);
  if (!id) return bad_request(fmt::format("the verdict {} has no number", printable(row.key)));
  Verdict verdict;
  verdict.id = *id;
  if (const Status read = store::read_row(row, verdict); !read) return read.error();
  return verdict;
}

json describe(const Verdict& verdict) {
  json holdings = json::array(), steps = json::array(), ancestry = json::array();
  for (const Holding& each : verdict.holdings)
    holdings.push_back({{"time", format_rfc3339(each.at)}, {"device", each.device}, {"used_bytes", each.used.count}});
  for (const Step& each : verdict.steps)
    steps.push_back({{"time", format_rfc3339(each.at)}, {"what", each.what}, {"result", or_null(each.result)}});
  for (const proc::Ancestor& each : verdict.record.ancestry) ancestry.push_back(describe(each));
  return {{"id", verdict.id},
          {"pid", verdict.record.process.pid},
          {"start_ticks", verdict.record.process.start_ticks},
          {"user", verdict.user},
          {"uid", verdict.record.uid},
          {"name", verdict.record.name},
          {"command", verdict.record.command},
          {"exe", or_null(verdict.exe)},
          {"cgroup", or_null(verdict.record.cgroup)},
          {"unit", or_null(verdict.record.unit)},
          {"container", or_null(verdict.record.container)},
          {"ancestry", std::move(ancestry)},
          {"missing_record", or_null(verdict.record.missing)},
          {"spared_for", verdict.spared_for ? json(to_string(verdict.spared_for)) : json(nullptr)},
          {"spared_because", or_null(verdict.spared)},
          {"graphics_only", verdict.draws},
          {"policy", to_string(verdict.policy)},
          {"stage", to_string(verdict.stage)},
          {"outcome", to_string(verdict.outcome)},
          {"sightings", verdict.sightings},
          {"evidence", {{"nvml", true}, {"device_file", verdict.device_file}, {"mapping", verdict.mapping}}},
          {"used_bytes", verdict.used().count},
          {"opened_at", format_rfc3339(verdict.opened_at)},
          {"last_seen_at", format_rfc3339(verdict.last_seen)},
          {"closed_at", verdict.open() ? json(nullptr) : json(format_rfc3339(verdict.closed_at))},
          {"kill_at", verdict.stage == Stage::terminating ? json(format_rfc3339(verdict.act_at)) : json(nullptr)},
          {"holdings", std::move(holdings)},
          {"steps", std::move(steps)},
          {"summary", summary(verdict)}};
}

std::string summary(const Verdict& verdict) {
  const std::string who = fmt::format("{} (pid {}, {})", verdict.record.name, verdict.record.process.pid, verdict.user);
  switch (verdict.stage) {
    case Stage::seen:
      if (verdict.spared_for)
        return fmt::format("{} holds {} under no lease and is spared: a process above it belonged to {}", who,
                           format_size(verdict.used()), to_string(verdict.spared_for));
      if (verdict.draws && verdict.policy == Policy::observe)
        return fmt::format("{} holds {} under no lease and only draws, so it is observed", who,
                           format_size(verdict.used()));
      if (const std::string why = why_spared(verdict); !why.empty())
        return fmt::format("{} holds {} under no lease and is spared: {}", who, format_size(verdict.used()), why);
      return fmt::format("{} holds {} under no lease since {}; the policy is {}", who, format_size(verdict.used()),
                         format_rfc3339(verdict.opened_at), to_string(verdict.policy));
    case Stage::condemned: return fmt::format("{} is about to be ended: it holds memory under no lease", who);
    case Stage::terminating:
      return fmt::format("{} got SIGTERM; SIGKILL follows at {}", who, format_rfc3339(verdict.act_at));
    case Stage::killing: return fmt::format("{} got SIGKILL and has not ended yet", who);
    case Stage::unkillable: return fmt::format("{} does not end; its memory stays charged to nobody's lease", who);
    case Stage::closed: break;
  }
  switch (verdict.outcome) {
    case Outcome::leased: return fmt::format("{} got a lease", who);
    case Outcome::approved: return fmt::format("{} was approved", who);
    case Outcome::ended: return fmt::format("{} was ended: it held memory under no lease", who);
    case Outcome::open:
    case Outcome::gone: break;
  }
  return fmt::format("{} ended by itself, or gave its memory back", who);
}

}  // namespace sublet::enforcer
