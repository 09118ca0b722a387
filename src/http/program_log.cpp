// SPDX-License-Identifier: Apache-2.0
// The logs of supervised programs and of sessions as streams.
#include "base/number.h"
#include "guard/guard.h"
#include "guard/log_reader.h"
#include "http/programs.h"
#include "http/query.h"
#include "http/routes.h"
#include "http/sessions.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

constexpr std::size_t most_lines = 1'000'000;

Status take_lines(const Request& request, std::optional<std::size_t>& into) {
  const std::string text = query_value(request, "lines");
  if (text.empty()) return {};
  into = parse_number<std::size_t>(text);
  if (into && *into <= most_lines) return {};
  return bad_request(fmt::format("lines={} is not a number from 0 to {}", printable(text), most_lines),
                     "leave lines out for the whole log");
}

Status take_since(const Request& request, Time now, std::optional<Time>& into) {
  const auto since = query_moment(request, "since", now);
  if (!since) return since.error();
  if (*since) into = (*since)->at;
  return {};
}

// Reads the log as the call asks.
Reply log_reply(const Call& call, guard::LogQuery query) {
  if (auto taken = take_lines(call.request, query.lines); !taken) return problem(taken.error());
  if (auto taken = take_since(call.request, call.engine.now(), query.since); !taken) return problem(taken.error());
  const auto follow = query_flag(call.request, "follow"), marks = query_flag(call.request, "marks");
  if (!follow) return problem(follow.error());
  if (!marks) return problem(marks.error());
  query.marks = marks->value_or(true);
  auto reader = guard::LogReader::open(std::move(query));
  if (!reader) return problem(reader.error());
  auto shared = std::make_shared<guard::LogReader>(std::move(*reader));
  return TextStream{.next = [shared] { return shared->next(); }, .follow = follow->value_or(false)};
}

Reply get_program_log(Call& call) {
  const auto program = find_program(call, call.args[0], true);
  if (!program) return problem(program.error());
  const guard::Guard& guard = *call.capabilities.guard;
  return log_reply(call,
                   {.path = guard.log_path(**program), .uid = (*program)->uid, .keep = guard.options().runs.log_keep});
}

Reply get_session_log(Call& call) {
  const auto session = find_session(call, call.args[0]);
  if (!session) return problem(session.error());
  const sessions::Sessions& sessions = *call.capabilities.sessions;
  if (!(*session)->has_command())
    return problem(not_found(fmt::format("{} has no program of its own, and so no log", (*session)->id()),
                             "processes that were attached write where they were started"));
  return log_reply(
      call, {.path = sessions.log_path(**session), .uid = (*session)->uid, .keep = sessions.options().runs.log_keep});
}

constexpr Route table[] = {
    Route{Method::get, "/v1/programs/{tag}/log", Role::user, Scope::read, get_program_log, "lines,since,follow,marks"},
    Route{Method::get, "/v1/sessions/{id}/log", Role::user, Scope::read, get_session_log, "lines,since,follow,marks"},
};

}  // namespace

const std::span<const Route> log_routes = table;

}  // namespace sublet::http
