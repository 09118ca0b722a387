// SPDX-License-Identifier: Apache-2.0
#include "guard/program.h"

#include "base/number.h"
#include "base/words.h"
#include "store/fields.h"

#include <fmt/format.h>

namespace sublet::guard {
namespace {

constexpr Words<Restart, 3> restarts{
    {{Restart::never, "never"}, {Restart::on_failure, "on-failure"}, {Restart::always, "always"}}};
constexpr Words<Phase, 7> phases{{{Phase::starting, "starting"},
                                  {Phase::queued, "queued"},
                                  {Phase::running, "running"},
                                  {Phase::backoff, "backoff"},
                                  {Phase::stopped, "stopped"},
                                  {Phase::exited, "exited"},
                                  {Phase::failed, "failed"}}};

constexpr Words<Wish, 4> wishes{
    {{Wish::none, "none"}, {Wish::stop, "stop"}, {Wish::restart, "restart"}, {Wish::remove, "remove"}}};

std::optional<Wish> parse_wish(std::string_view text) { return value_of(wishes, text); }

}  // namespace

std::string_view to_string(Wish wish) { return word_of(wishes, wish); }
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

void fields(auto& visit, store::Like<Manifest> auto& manifest) {
  visit("arguments", manifest.arguments);
  visit("environment", manifest.environment);
  visit("directory", manifest.directory);
  visit("umask", manifest.umask);
  visit("limits", manifest.limits);
  visit("command", manifest.command);
  visit.word("restart", manifest.restart, parse_restart);
  visit("request", manifest.request);
  visit("sized_by_ceiling", manifest.sized_by_ceiling);
}

void fields(auto& visit, store::Like<Progress> auto& progress) {
  visit.word("phase", progress.phase, parse_phase);
  visit("since", progress.since);
  visit("why", progress.why);
  visit("start", progress.start);
  visit("lease", progress.lease);
  visit("restarts", progress.restarts);
  visit("recent", progress.recent);
  visit("next_start", progress.next_start);
  visit("exit_status", progress.exit_status);
  visit("end_reason", progress.end_reason);
  visit("ending", progress.ending);
  visit.word("wish", progress.wish, parse_wish);
  visit("warning", progress.warning);
}

void fields(auto& visit, store::Like<Program> auto& program) {
  visit("user", program.user);
  visit("number", program.number);
  visit("created_at", program.created_at);
  visit("manifest", program.manifest);
  visit("progress", program.progress);
}

store::CapabilityRow to_row(const Program& program) {
  return store::row_of(row_kind, row_key(program.uid, program.tag), program);
}

Result<Program> from_row(const store::CapabilityRow& row) {
  Program program;
  const auto slash = row.key.find('/');
  const auto uid = parse_number<std::uint32_t>(row.key.substr(0, slash));
  if (slash == std::string::npos || !uid) return unavailable("the stored program '" + row.key + "' has no user");
  program.uid = *uid;
  program.tag = row.key.substr(slash + 1);
  if (const Status read = store::read_row(row, program); !read) return read.error();
  store::drop_nulls(program.manifest.request);
  return program;
}

}  // namespace sublet::guard
