// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/lease_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {
namespace {

// What comes of it until the lease ends.
std::string first_words(const client::Lease& lease) {
  const std::string back = "it is " + lease.state + " and comes back first";
  if (!lease.has_keeper())
    return back +
           ", when it has room; then its lease ends, and not its program, which Sublet did not start; waiting "
           "for the lease's end";
  return (lease.stopping ? "" : back + ", to save its work, when it has room; then ") + "SIGTERM, after " +
         format_duration(lease.stop_grace) + " SIGKILL; waiting for its end";
}

std::string last_words(const client::Lease& lease) {
  std::string words = fmt::format("{} has ended ({})", lease.id, lease.end_reason);
  if (lease.owner_kind == "process" && !lease.has_keeper() && lease.end_reason == "released")
    words += fmt::format("; Sublet did not start its program (pid {0}) and does not end it: `kill {0}` does",
                         lease.owner_pid);
  return words;
}

int stop(const Common& common, const LeaseVerb& verb, bool force, bool no_wait) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto token = read_token(verb);
  if (!token) return fail(token.error());
  const char* body = force ? R"({"stop":true,"force":true})" : R"({"stop":true})";
  const auto reply = client->call({"POST", lease_target(verb, "/release"), body, {}, *token});
  if (!reply) return fail(common, reply.error());
  const auto asked = client::parse_lease(reply->text);
  if (!asked) return fail(common, asked.error());
  if (no_wait || asked->ended()) {
    if (common.json) fmt::print("{}\n", reply->text);
    else if (asked->ended()) say(common, visible(last_words(*asked)));
    else if (!asked->has_keeper()) say(common, visible(fmt::format("{}: {}", asked->id, first_words(*asked))));
    else say(common, visible(fmt::format("{} is being stopped", asked->id)));
    return kOk;
  }
  if (!common.json) say(common, visible(fmt::format("{}: {}", asked->id, first_words(*asked))));
  const auto ended = wait_for_end(common, *client, {asked->id, {}}, *token);
  if (!ended) return fail(common, ended.error());
  if (common.json) fmt::print("{}\n", ended->reply.text);
  else say(common, visible(last_words(ended->lease)));
  return kOk;
}

}  // namespace

Action add_stop(Command command, Common& common) {
  auto verb = std::make_shared<LeaseVerb>();
  auto force = std::make_shared<bool>(false);
  auto no_wait = std::make_shared<bool>(false);
  add_lease(command, common, *verb);
  command.flag("--force", *force, "Also while it is paused: it does not come back first, and cannot save its work");
  command.flag("--no-wait", *no_wait, "Do not wait for the end");
  command.footer(
      "A program that Sublet did not start (`sublet hold --pid`, `sublet attach`) is\n"
      "not ended: its lease is, once it holds no VRAM, or when it is back from its\n"
      "pause, and it goes on. `kill PID` ends it.");
  return [&common, verb, force, no_wait] { return stop(common, *verb, *force, *no_wait); };
}

}  // namespace sublet::cli
