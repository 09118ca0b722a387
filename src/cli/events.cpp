// SPDX-License-Identifier: Apache-2.0
// `events`: what happens, a line each, over restarts of the daemon.
#include "base/clock.h"
#include "base/moment.h"
#include "base/number.h"
#include "base/text.h"
#include "cli/fetch.h"
#include "client/event_stream.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cctype>
#include <memory>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

// Signs of life come every 15 s: two of them missing is a daemon that hangs.
constexpr Duration silence = 40s;

struct EventsFlags {
  std::string since;         // id of an event; "": what comes from now on
  std::optional<Time> from;  // earlier events are left out
  std::string lease;
  std::string type;
  bool no_follow = false;
  std::string test_target;
};

std::string target_of(const EventsFlags& flags) {
  std::string query;
  const auto add = [&](const char* name, const std::string& value) {
    query += fmt::format("{}{}={}", query.empty() ? "?" : "&", name, client::encode(value));
  };
  if (!flags.lease.empty()) add("lease", flags.lease);
  if (!flags.type.empty()) add("type", flags.type);
  if (flags.no_follow) add("follow", "false");
  return "/v1/events" + query;
}

// "2026-11-21T16:00:05.123Z  lease-7 granted: …": time, what it is about, what happened.
std::string line_of(const client::StreamedEvent& event, const Look& look) {
  const auto body = json::parse(event.data, nullptr, false);
  std::string what, text = text_at(body, "text");
  if (event.type == "lease") {
    what = fmt::format("{} {}", paint(text_at(body, "lease"), Paint::bold, look), text_at(body, "code"));
    const std::string name = text_at(body, "tag").empty() ? text_at(body, "consumer") : text_at(body, "tag");
    text = fmt::format("{} ({}, {})", text, name, text_at(body, "user"));
  } else if (event.type == "device") {
    what = fmt::format("{} {}", paint(text_at(body, "device"), Paint::bold, look), text_at(body, "state"));
    text = text_at(body, "problem");
  } else if (event.type == "service") {
    what = fmt::format("{} {}", paint(text_at(body, "device"), Paint::bold, look), text_at(body, "state"));
    text = text_at(body, "reason");
  } else if (event.type == "warning") {
    what = paint(fmt::format("warning {} {}", text_at(body, "code"), text_at(body, "state")), Paint::yellow, look);
  } else if (event.type == "stack") {
    what = paint(fmt::format("stack {} {}", text_at(body, "stack"), text_at(body, "state")), Paint::bold, look);
    text = text_at(body, "text");
  } else if (event.type == "session") {
    what = paint(fmt::format("{} {}", text_at(body, "session"), text_at(body, "state")), Paint::bold, look);
    text = text_at(body, "why");
  } else if (event.type == "tenants") {
    what = paint("tenants", Paint::bold, look);
    text = fmt::format("{} added, {} changed, {} removed by {}", number_at(body, "added_count").value_or(0),
                       number_at(body, "changed_count").value_or(0), number_at(body, "removed_count").value_or(0),
                       text_at(body, "by"));
  } else if (event.type == "verdict") {
    what = paint(fmt::format("verdict {} {}", number_at(body, "verdict").value_or(0), text_at(body, "stage")),
                 Paint::yellow, look);
  } else if (event.type == "daemon") {
    what = fmt::format("daemon {}", text_at(body, "state"));
    text = "subletd " + text_at(body, "version");
    if (const auto asleep = number_at(body, "asleep_seconds"))
      text = fmt::format("the machine slept for {}", format_duration(std::chrono::seconds(*asleep)));
  } else {
    what = paint(visible(event.type), Paint::red, look);
  }
  return fmt::format("{}  {}{}{}\n", text_at(body, "at"), what, text.empty() ? "" : ": ", text);
}

// The event's object with its id in front; a gap has none.
std::string with_id(const client::StreamedEvent& event, const std::string& id) {
  if (event.type == "gap" || !event.data.starts_with("{\"")) return event.data;
  return fmt::format("{{\"id\":{},{}", json(id).dump(), std::string_view(event.data).substr(1));
}

// False if the reader of stdout is gone.
bool print(const Common& common, const client::StreamedEvent& event, const std::string& id, const Look& look) {
  if (common.json) fmt::print("{}\n", with_id(event, id));
  else fmt::print("{}", line_of(event, look));
  return std::fflush(stdout) == 0;
}

// "1f2e3d4c-17": of which store, and the number there.
bool is_event_id(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash == 0 || dash == std::string_view::npos) return false;
  const auto hex = [](unsigned char c) { return std::isxdigit(c) != 0; };
  return std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(dash), hex) &&
         parse_number<std::uint64_t>(text.substr(dash + 1)).has_value();
}

// An id is a place; a time is looked for in all stored events.
Status take_since(const std::string& text, EventsFlags& flags) {
  flags.from.reset();
  flags.since = text;
  if (text == "0" || is_event_id(text)) return {};
  flags.since = "0";
  const auto moment = parse_moment(text, wall_time(), Tense::past, Zone::local);
  if (!moment)
    return bad_request(fmt::format("'{}' is neither a time nor an event's id", printable(text)),
                       moment.error().hint + "; an id looks like 1f2e3d4c-17, and 0 begins with the oldest event");
  flags.from = moment->at;
  return {};
}

bool is_before(const client::StreamedEvent& event, Time from) {
  const auto at = time_at(json::parse(event.data, nullptr, false), "at");
  return at && *at < from;
}

int follow(const Common& common, const EventsFlags& flags) {
  const auto endpoint = client::resolve_endpoint(common.host);
  if (!endpoint) return fail(endpoint.error());
  client::EventStream stream(*endpoint);
  const Look look = look_for(common);
  // The last seen event is the place to continue from, also after the daemon was away.
  std::string last_id = flags.since.empty() && flags.no_follow ? "0" : flags.since;
  bool connected = false;
  for (bool told = false;;) {
    if (auto opened = stream.open(target_of(flags), last_id); !opened) {
      if (!connected || flags.no_follow || !opened.error().passing()) return fail(common, opened.error());
      if (!std::exchange(told, true)) say(common, "the daemon does not answer; waiting until it is back");
      ::poll(nullptr, 0, 500);
      continue;
    }
    connected = true;
    told = false;
    bool gap = false;  // a slow reader is told of it, cut off, and goes on from there
    while (const auto event = stream.next(silence)) {
      const bool is_wanted = !flags.from || !is_before(*event, *flags.from);
      if (is_wanted && !print(common, *event, stream.last_id(), look)) return kFailed;
      gap = gap || event->type == "gap";
    }
    if (flags.no_follow && stream.complete()) {
      if (stream.last_id() != "0") say(common, "to continue from here: --since " + visible(stream.last_id()));
      return kOk;
    }
    const bool further = std::exchange(last_id, stream.last_id()) != stream.last_id();
    if (flags.no_follow && !(gap && further)) {
      print_error("the daemon closed the stream before the last event",
                  last_id == "0" ? "sublet status shows whether the daemon is healthy"
                                 : "get the rest: sublet events --no-follow --since " + last_id);
      return kFailed;
    }
  }
}

int test_target(const Common& common, const std::string& name) {
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto reply = client->call(
      {"POST", "/v1/events/targets/" + client::encode(name) + "/test", "{}", client::new_idempotency_key(), {}});
  if (!reply) return fail(common, reply.error());
  const auto body = client::parse(*reply);
  if (!body) return fail(common, body.error());
  const bool sent = flag_at(*body, "sent");
  if (common.json) fmt::print("{}\n", reply->text);
  else if (sent) fmt::print("{} took a test event\n", visible(name));
  else
    print_error(fmt::format("{} did not take the test event: {}", visible(name), text_at(*body, "problem")),
                "events.redis or [[events.webhook]] in the configuration has its address");
  return sent ? kOk : kFailed;
}

}  // namespace

Action add_events(Command command, Common& common) {
  auto flags = std::make_shared<EventsFlags>();
  command.option("LEASE", flags->lease, "Only events of this lease")
      .not_empty()
      .type("LEASE")
      .offers(Offer::Of::all_leases);
  const auto take = [flags](const std::string& text) { return take_since(text, *flags); };
  command
      .taken(
          "--since", take,
          "Begin at this time or so long ago, or after the event with this id; 0 begins with the oldest stored event")
      .type("TIME|ID")
      .offers({Offer::Of::words, {"0"}});
  command
      .option(
          "--type", flags->type,
          "Only events of these types, separated by commas: lease, device, service, warning, verdict, stack, session, "
          "tenants, daemon")
      .type("TYPES")
      .one_of({"lease", "device", "service", "warning", "verdict", "stack", "session", "tenants", "daemon"}, true);
  command.option("--test-target", flags->test_target, "Send a test event to Redis (redis) or to this webhook")
      .not_empty()
      .type("NAME");
  command.flag("--no-follow", flags->no_follow, "Print the stored events and exit");
  add_json(command, common);
  command.footer(
      "Prints one line per event, or with --json the event's JSON object with its id.\n"
      "--since takes such an id too; --no-follow prints the last id on stderr. The\n"
      "command continues after a restart of the daemon; a line reports lost events.");
  return [&common, flags] {
    return flags->test_target.empty() ? follow(common, *flags) : test_target(common, flags->test_target);
  };
}

}  // namespace sublet::cli
