// SPDX-License-Identifier: Apache-2.0
// Following what happens: where a reader begins, and what it wants to hear of.
#include "base/number.h"
#include "base/text.h"
#include "http/find_lease.h"
#include "http/query.h"
#include "http/routes.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

constexpr std::array<std::string_view, 9> types{"lease", "device",  "service", "warning", "verdict",
                                                "stack", "session", "tenants", "daemon"};

Status take_types(std::string_view text, std::vector<std::string>& into) {
  while (!text.empty()) {
    const auto word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (!std::ranges::count(types, word)) {
      return bad_request(fmt::format("there is no event type '{}'{}", printable(word), did_you_mean(word, types)),
                         fmt::format("types, separated by commas: {}", fmt::join(types, ", ")));
    }
    into.emplace_back(word);
  }
  return {};
}

// Where the reader was: "LIFE-NUMBER" as it was told, "0" for everything that is kept, nothing for what comes from now.
Status take_place(const std::string& last_id, const engine::EventLog& log, FollowEvents& wanted) {
  wanted.after = log.last();
  if (last_id.empty()) return {};
  wanted.after_text = last_id;
  wanted.after = 0;
  wanted.whole = true;
  if (last_id == "0") return {};
  const auto dash = last_id.find('-');
  const auto number = parse_number<std::uint64_t>(dash == std::string::npos ? "" : last_id.substr(dash + 1));
  if (!number) {
    return bad_request(fmt::format("Last-Event-ID '{}' is not an event's id", printable(last_id)),
                       "send the id of the last event, or 0 for all stored events");
  }
  if (last_id.substr(0, dash) != log.life()) {
    wanted.gap = "the event belongs to another store; the stored events of this store follow";
  } else if (*number > log.last()) {
    wanted.gap = "the event is not in this store; the stored events follow";
  } else {
    wanted.after = *number;
    wanted.whole = false;
  }
  return {};
}

Reply get_events(Call& call) {
  const Request& request = call.request;
  FollowEvents wanted;
  if (auto taken = take_place(request.last_event_id, call.engine.commits().log(), wanted); !taken)
    return problem(taken.error());
  if (auto taken = take_types(query_value(request, "type"), wanted.types); !taken) return problem(taken.error());
  if (const auto text = query_value(request, "heartbeat"); !text.empty()) {
    const auto heartbeat = parse_duration(text);
    if (!heartbeat) return problem(heartbeat.error());
    wanted.heartbeat = std::clamp<Duration>(*heartbeat, std::chrono::seconds(1), std::chrono::minutes(5));
  }
  const auto follow = query_flag(request, "follow");
  if (!follow) return problem(follow.error());
  wanted.follow = follow->value_or(true);
  const auto readings = query_flag(request, "readings");
  if (!readings) return problem(readings.error());
  wanted.readings = readings->value_or(false);
  const auto lease = query_value(request, "lease");
  if (lease.empty()) return wanted;
  return with_lease(call, lease, [wanted](const core::Lease& found) mutable -> Reply {
    wanted.lease = found.id;
    return wanted;
  });
}

constexpr Route table[] = {
    Route{Method::get, "/v1/events", Role::user, Scope::read, get_events, "lease,type,heartbeat,follow,readings",
          "Event"},
};

}  // namespace

const std::span<const Route> event_routes = table;

}  // namespace sublet::http
