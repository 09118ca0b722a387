// SPDX-License-Identifier: Apache-2.0
#include "guard/program.h"

#include "base/number.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace sublet::guard {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<Restart, std::string_view>, 3> restarts{
    {{Restart::never, "never"}, {Restart::on_failure, "on-failure"}, {Restart::always, "always"}}};
constexpr std::array<std::pair<Phase, std::string_view>, 7> phases{{{Phase::starting, "starting"},
                                                                    {Phase::queued, "queued"},
                                                                    {Phase::running, "running"},
                                                                    {Phase::backoff, "backoff"},
                                                                    {Phase::stopped, "stopped"},
                                                                    {Phase::exited, "exited"},
                                                                    {Phase::failed, "failed"}}};

template <typename Table, typename Value>
std::string_view word_of(const Table& table, Value value) {
  for (const auto& [known, word] : table)
    if (known == value) return word;
  return "unknown";
}

template <typename Table>
auto value_of(const Table& table, std::string_view text) -> std::optional<decltype(table.front().first)> {
  for (const auto& [known, word] : table)
    if (word == text) return known;
  return std::nullopt;
}

json write(const Manifest& manifest) {
  return {{"arguments", manifest.arguments},
          {"environment", manifest.environment},
          {"directory", manifest.directory},
          {"umask", manifest.umask},
          {"limits", manifest.limits},
          {"command", manifest.command},
          {"restart", to_string(manifest.restart)},
          {"request", manifest.request},
          {"sized_by_ceiling", manifest.sized_by_ceiling}};
}

// A wish is stored as three flags.
Wish read_wish(const json& from) {
  if (from.at("removing").get<bool>()) return Wish::remove;
  if (from.at("again").get<bool>()) return Wish::restart;
  return from.at("stop_asked").get<bool>() ? Wish::stop : Wish::none;
}

json write(const Progress& progress) {
  json recent = json::array();
  for (const Time at : progress.recent) recent.push_back(at.ns);
  json out{{"phase", to_string(progress.phase)},
           {"since", progress.since.ns},
           {"why", progress.why},
           {"start", progress.start},
           {"lease", progress.lease.number},
           {"restarts", progress.restarts},
           {"recent", std::move(recent)},
           {"next_start", progress.next_start.ns},
           {"end_reason", progress.end_reason},
           {"ending", progress.ending},
           {"stop_asked", progress.wish == Wish::stop},
           {"again", progress.wish == Wish::restart},
           {"removing", progress.wish == Wish::remove},
           {"warning", progress.warning}};
  if (progress.exit_status) out["exit_status"] = *progress.exit_status;
  return out;
}

Manifest read_manifest(const json& from) {
  Manifest manifest;
  from.at("arguments").get_to(manifest.arguments);
  from.at("environment").get_to(manifest.environment);
  from.at("directory").get_to(manifest.directory);
  from.at("umask").get_to(manifest.umask);
  manifest.limits = from.at("limits");
  from.at("command").get_to(manifest.command);
  manifest.restart = parse_restart(from.at("restart").get<std::string>()).value_or(Restart::never);
  for (const auto& [field, value] : from.at("request").items())
    if (!value.is_null()) manifest.request[field] = value;
  from.at("sized_by_ceiling").get_to(manifest.sized_by_ceiling);
  return manifest;
}

Progress read_progress(const json& from) {
  Progress progress;
  progress.phase = parse_phase(from.at("phase").get<std::string>()).value_or(Phase::failed);
  from.at("since").get_to(progress.since.ns);
  from.at("why").get_to(progress.why);
  from.at("start").get_to(progress.start);
  from.at("lease").get_to(progress.lease.number);
  from.at("restarts").get_to(progress.restarts);
  for (const json& at : from.at("recent")) progress.recent.push_back({at.get<std::int64_t>()});
  from.at("next_start").get_to(progress.next_start.ns);
  from.at("end_reason").get_to(progress.end_reason);
  progress.ending = from.value("ending", false);
  progress.wish = read_wish(from);
  from.at("warning").get_to(progress.warning);
  if (from.contains("exit_status")) progress.exit_status = from.at("exit_status").get<int>();
  return progress;
}

}  // namespace

std::string_view to_string(Restart restart) { return word_of(restarts, restart); }
std::string_view to_string(Phase phase) { return word_of(phases, phase); }
std::optional<Restart> parse_restart(std::string_view text) { return value_of(restarts, text); }
std::optional<Phase> parse_phase(std::string_view text) { return value_of(phases, text); }

Bytes Manifest::bytes(std::string_view field) const {
  const auto found = request.find(field);
  return {found != request.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0};
}

Bytes Manifest::size() const {
  std::size_t sum = directory.size() + command.size() + request.dump().size() + limits.dump().size();
  for (const auto* words : {&arguments, &environment})
    for (const std::string& word : *words) sum += word.size() + 3;  // with quotes and a comma
  return Bytes{static_cast<std::int64_t>(sum)};
}

std::string row_key(std::uint32_t uid, const std::string& tag) { return fmt::format("{}/{}", uid, tag); }

store::CapabilityRow to_row(const Program& program) {
  const json data{{"user", program.user},
                  {"number", program.number},
                  {"created_at", program.created_at.ns},
                  {"manifest", write(program.manifest)},
                  {"progress", write(program.progress)}};
  return {std::string(row_kind), row_key(program.uid, program.tag),
          data.dump(-1, ' ', false, json::error_handler_t::replace)};
}

Result<Program> from_row(const store::CapabilityRow& row) {
  try {
    const json data = json::parse(row.data);
    Program program;
    const auto slash = row.key.find('/');
    const auto uid = parse_number<std::uint32_t>(row.key.substr(0, slash));
    if (slash == std::string::npos || !uid) return unavailable("the stored program '" + row.key + "' has no user");
    program.uid = *uid;
    program.tag = row.key.substr(slash + 1);
    data.at("user").get_to(program.user);
    data.at("number").get_to(program.number);
    data.at("created_at").get_to(program.created_at.ns);
    program.manifest = read_manifest(data.at("manifest"));
    program.progress = read_progress(data.at("progress"));
    return program;
  } catch (const json::exception& wrong) {
    return unavailable("the stored program '" + row.key + "' cannot be read: " + wrong.what());
  }
}

}  // namespace sublet::guard
