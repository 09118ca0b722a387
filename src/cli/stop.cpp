// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/lease_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {
namespace {

// The steps until the lease ends.
std::string first_words(const client::Lease& lease) {
  const std::string resumed = "the lease is " + lease.state + " and is resumed first, once memory is free";
  if (!lease.has_keeper())
    return resumed + "; then the lease ends, without its program, which Sublet did not start; waiting for the end";
  return (lease.stopping ? "" : resumed + ", so that its program can save its work; then ") + "SIGTERM, and after " +
         format_duration(lease.stop_grace) + " SIGKILL; waiting for the end";
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
  command.flag("--force", *force, "Do not resume a paused lease first; its program cannot save its work");
  command.flag("--no-wait", *no_wait, "Do not wait until the lease has ended");
  command.footer(
      "Sublet does not end a program that it did not start (`sublet hold --pid`,\n"
      "`sublet attach`). The lease of such a program ends once the program holds no\n"
      "VRAM, or has been resumed from a pause. `kill PID` ends the program.");
  return [&common, verb, force, no_wait] { return stop(common, *verb, *force, *no_wait); };
}

}  // namespace sublet::cli
