// SPDX-License-Identifier: Apache-2.0
// The log of a supervised program as a stream.
#include "base/number.h"
#include "guard/guard.h"
#include "guard/log_reader.h"
#include "http/programs.h"
#include "http/query.h"
#include "http/resources.h"

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
  const std::string text = query_value(request, "since");
  if (text.empty()) return {};
  if (into = parse_time(text); into) return {};
  if (const auto ago = parse_duration(text)) {
    into = now - *ago;
    return {};
  }
  return bad_request(fmt::format("since={} is neither a time nor a duration", printable(text)),
                     "for example since=10m, or since=2026-11-21T16:00:00Z");
}

}  // namespace

Reply get_program_log(Call& call) {
  const auto program = find_program(call, call.args[0], true);
  if (!program) return problem(program.error());
  const guard::Guard& guard = *call.capabilities.guard;
  guard::LogQuery query{.path = guard.log_path(**program), .uid = (*program)->uid, .keep = guard.options().log_keep};
  if (auto taken = take_lines(call.request, query.lines); !taken) return problem(taken.error());
  if (auto taken = take_since(call.request, call.engine.now(), query.since); !taken) return problem(taken.error());
  const auto follow = query_flag(call.request, "follow");
  if (!follow) return problem(follow.error());
  auto reader = guard::LogReader::open(std::move(query));
  if (!reader) return problem(reader.error());
  auto shared = std::make_shared<guard::LogReader>(std::move(*reader));
  return TextStream{.next = [shared] { return shared->next(); }, .follow = follow->value_or(false)};
}

}  // namespace sublet::http
