// SPDX-License-Identifier: Apache-2.0
#include "enforcer/verdict.h"

#include "base/number.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

namespace sublet::enforcer {
namespace {

using nlohmann::json;

constexpr std::array stages{std::pair{Stage::seen, "seen"},
                            std::pair{Stage::condemned, "condemned"},
                            std::pair{Stage::terminating, "terminating"},
                            std::pair{Stage::killing, "killing"},
                            std::pair{Stage::unkillable, "unkillable"},
                            std::pair{Stage::closed, "closed"}};
constexpr std::array outcomes{std::pair{Outcome::open, "open"}, std::pair{Outcome::gone, "gone"},
                              std::pair{Outcome::leased, "leased"}, std::pair{Outcome::approved, "approved"},
                              std::pair{Outcome::ended, "ended"}};

template <typename Table, typename Value>
std::string_view word_of(const Table& table, Value value) {
  for (const auto& [each, word] : table)
    if (each == value) return word;
  return {};
}

template <typename Value, typename Table>
std::optional<Value> value_of(const Table& table, std::string_view text) {
  for (const auto& [each, word] : table)
    if (word == text) return each;
  return std::nullopt;
}

json process_json(ProcessRef process) { return json::array({process.pid, process.start_ticks}); }

ProcessRef process_from(const json& data) { return {data.at(0).get<std::int32_t>(), data.at(1).get<std::uint64_t>()}; }

json record_json(const proc::ProcessRecord& record) {
  json ancestry = json::array();
  for (const proc::Ancestor& each : record.ancestry)
    ancestry.push_back({{"process", process_json(each.process)},
                        {"uid", each.uid},
                        {"name", each.name},
                        {"source", static_cast<int>(each.source)},
                        {"certain", each.certain},
                        {"dead", each.dead},
                        {"ended_ns", each.ended.ns}});
  return {{"process", process_json(record.process)},
          {"uid", record.uid},
          {"name", record.name},
          {"command", record.command},
          {"cgroup", record.cgroup},
          {"unit", record.unit},
          {"system_unit", record.system_unit},
          {"container", record.container},
          {"ancestry", std::move(ancestry)},
          {"missing", record.missing}};
}

proc::Ancestor ancestor_from(const json& data) {
  constexpr int last_source = static_cast<int>(proc::ParentSource::leader);
  return {.process = process_from(data.at("process")),
          .uid = data.at("uid").get<std::uint32_t>(),
          .name = data.at("name").get<std::string>(),
          .source = static_cast<proc::ParentSource>(std::clamp(data.value("source", 0), 0, last_source)),
          .certain = data.value("certain", true),
          .dead = data.value("dead", false),
          .ended = Time{data.value("ended_ns", std::int64_t{0})}};
}

proc::ProcessRecord record_from(const json& data) {
  proc::ProcessRecord record;
  record.process = process_from(data.at("process"));
  record.uid = data.at("uid").get<std::uint32_t>();
  for (const auto& [name, field] :
       {std::pair{"name", &record.name}, std::pair{"command", &record.command}, std::pair{"cgroup", &record.cgroup},
        std::pair{"unit", &record.unit}, std::pair{"container", &record.container}})
    *field = data.at(name).get<std::string>();
  record.system_unit = data.at("system_unit").get<bool>();
  for (const json& each : data.at("ancestry")) record.ancestry.push_back(ancestor_from(each));
  record.missing = data.value("missing", "");
  return record;
}

std::string dump(const json& data) { return data.dump(-1, ' ', false, json::error_handler_t::replace); }

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

store::CapabilityRow to_row(const Verdict& verdict) {
  json holdings = json::array(), steps = json::array();
  for (const Holding& each : verdict.holdings) holdings.push_back({each.at.ns, each.device, each.used.count});
  for (const Step& each : verdict.steps) steps.push_back({each.at.ns, each.what, each.result});
  const json data{{"record", record_json(verdict.record)},
                  {"inode", verdict.inode},
                  {"user", verdict.user},
                  {"exe", verdict.exe},
                  {"device_file", verdict.device_file},
                  {"mapping", verdict.mapping},
                  {"draws", verdict.draws},
                  {"looked", verdict.looked},
                  {"spared", verdict.spared},
                  {"opened_ns", verdict.opened_at.ns},
                  {"seen_ns", verdict.last_seen.ns},
                  {"closed_ns", verdict.closed_at.ns},
                  {"sightings", verdict.sightings},
                  {"policy", to_string(verdict.policy)},
                  {"stage", to_string(verdict.stage)},
                  {"outcome", to_string(verdict.outcome)},
                  {"noticed", verdict.noticed},
                  {"spared_for", verdict.spared_for.number},
                  {"descendants", verdict.descendants},
                  {"act_ns", verdict.act_at.ns},
                  {"holdings", std::move(holdings)},
                  {"steps", std::move(steps)}};
  return {"verdict", fmt::format("{}", verdict.id), dump(data)};
}

Result<Verdict> verdict_from_row(const store::CapabilityRow& row) {
  const auto id = parse_number<std::uint64_t>(row.key);
  const auto unreadable = [&](std::string_view why) {
    return bad_request(fmt::format("the verdict {} cannot be read: {}", printable(row.key), printable(why)));
  };
  if (!id) return unreadable("its number");
  try {
    const json data = json::parse(row.data);
    Verdict verdict;
    verdict.id = *id;
    verdict.record = record_from(data.at("record"));
    verdict.inode = data.at("inode").get<std::uint64_t>();
    verdict.user = data.at("user").get<std::string>();
    verdict.exe = data.at("exe").get<std::string>();
    verdict.device_file = data.at("device_file").get<bool>();
    verdict.mapping = data.at("mapping").get<bool>();
    verdict.draws = data.value("draws", false);
    verdict.looked = data.value("looked", false);
    verdict.spared = data.value("spared", "");
    verdict.opened_at.ns = data.at("opened_ns").get<std::int64_t>();
    verdict.last_seen.ns = data.at("seen_ns").get<std::int64_t>();
    verdict.closed_at.ns = data.at("closed_ns").get<std::int64_t>();
    verdict.sightings = data.at("sightings").get<int>();
    verdict.policy = parse_policy(data.at("policy").get<std::string>()).value();
    verdict.stage = value_of<Stage>(stages, data.at("stage").get<std::string>()).value();
    verdict.outcome = value_of<Outcome>(outcomes, data.at("outcome").get<std::string>()).value();
    verdict.noticed = data.at("noticed").get<bool>();
    verdict.spared_for.number = data.value("spared_for", std::uint64_t{0});
    verdict.descendants = data.at("descendants").get<int>();
    verdict.act_at.ns = data.at("act_ns").get<std::int64_t>();
    for (const json& each : data.at("holdings"))
      verdict.holdings.push_back(
          {Time{each.at(0).get<std::int64_t>()}, each.at(1).get<std::string>(), Bytes{each.at(2).get<std::int64_t>()}});
    for (const json& each : data.at("steps"))
      verdict.steps.push_back(
          {Time{each.at(0).get<std::int64_t>()}, each.at(1).get<std::string>(), each.at(2).get<std::string>()});
    return verdict;
  } catch (const std::exception& error) {  // of the JSON library, or a word that this version does not know
    return unreadable(error.what());
  }
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
