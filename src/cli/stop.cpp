// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/lease_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {
namespace {

int stop(const Common& common, const LeaseVerb& verb, bool no_wait) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto token = read_token(verb);
  if (!token) return fail(token.error());
  const auto reply = client->call({"POST", lease_target(verb, "/release"), R"({"stop":true})", {}, *token});
  if (!reply) return fail(common, reply.error());
  const auto asked = client::parse_lease(reply->text);
  if (!asked) return fail(common, asked.error());
  if (no_wait || asked->ended()) {
    if (common.json) fmt::print("{}\n", reply->text);
    else if (asked->ended()) say(common, visible(fmt::format("{} has ended ({})", asked->id, asked->end_reason)));
    else say(common, visible(fmt::format("{} is being stopped", asked->id)));
    return kOk;
  }
  if (!common.json) {
    const std::string first =
        asked->stopping ? ""
                        : "it is " + asked->state + " and comes back first, to save its work, when it has room; then ";
    say(common, visible(fmt::format("{}: {}SIGTERM, after {} SIGKILL; waiting for its end", asked->id, first,
                                    format_duration(asked->stop_grace))));
  }
  const auto ended = wait_for_end(common, *client, {asked->id, {}}, *token);
  if (!ended) return fail(common, ended.error());
  if (common.json) fmt::print("{}\n", ended->reply.text);
  else say(common, visible(fmt::format("{} has ended ({})", ended->lease.id, ended->lease.end_reason)));
  return kOk;
}

}  // namespace

Action add_stop(Command command, Common& common) {
  auto verb = std::make_shared<LeaseVerb>();
  auto no_wait = std::make_shared<bool>(false);
  add_lease(command, common, *verb);
  command.flag("--no-wait", *no_wait, "Do not wait for the end");
  return [&common, verb, no_wait] { return stop(common, *verb, *no_wait); };
}

}  // namespace sublet::cli
