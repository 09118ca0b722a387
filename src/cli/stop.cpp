// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/lease_verb.h"
#include "cli/program_verb.h"

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

struct StopFlags {
  LeaseVerb verb;
  bool force = false;
  bool no_wait = false;
};

int stop_lease(const Common& common, client::Client& client, const StopFlags& flags, const std::string& token,
               const client::Answer<client::Reply>& reply) {
  if (!reply) return fail(common, reply.error());
  const auto asked = client::parse_lease(reply->text);
  if (!asked) return fail(common, asked.error());
  if (flags.no_wait || asked->ended()) {
    if (common.json) fmt::print("{}\n", reply->text);
    else if (asked->ended()) say(common, visible(last_words(*asked)));
    else if (!asked->has_keeper()) say(common, visible(fmt::format("{}: {}", asked->id, first_words(*asked))));
    else say(common, visible(fmt::format("{} is being stopped", asked->id)));
    return kOk;
  }
  if (!common.json) say(common, visible(fmt::format("{}: {}", asked->id, first_words(*asked))));
  const auto ended = wait_for_end(common, client, {asked->id, {}}, token);
  if (!ended) return fail(common, ended.error());
  if (common.json) fmt::print("{}\n", ended->reply.text);
  else say(common, visible(last_words(ended->lease)));
  return kOk;
}

std::string stopped_words(const nlohmann::json& program, bool no_wait) {
  const std::string state = text_at(program, "state");
  if (state == "exited" || state == "failed") return fmt::format("does not run: it is {}", state);
  const bool lives = !text_at(program, "lease_state").empty();
  return lives && no_wait ? "is being stopped" : "is stopped";
}

// `reply`: the daemon's answer to the stop of a supervised program.
int stop_program(const Common& common, client::Client& client, const StopFlags& flags, client::Reply reply) {
  const std::string& tag = flags.verb.lease;
  const auto program = client::parse(reply);
  if (!program) return fail(common, program.error());
  const std::string lease = text_at(*program, "lease");
  if (!text_at(*program, "lease_state").empty() && !flags.no_wait) {
    const auto ended = wait_for_end(common, client, {lease, {}}, {});
    if (!ended) return fail(common, ended.error());
    auto now = client.get(program_target(tag));
    if (!now) return fail(common, now.error());
    reply = std::move(*now);
  }
  if (common.json) fmt::print("{}\n", reply.text);
  else say(common, visible(tag + " " + stopped_words(*program, flags.no_wait)));
  return kOk;
}

int stop(const Common& common, const StopFlags& flags) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto token = read_token(flags.verb);
  if (!token) return fail(token.error());
  // A lease's token has no right to a program.
  std::optional<client::Failure> no_program;
  if (token->empty() && !is_lease_id(flags.verb.lease)) {
    auto reply = client->post(program_target(flags.verb.lease, "/stop"),
                              flags.force ? nlohmann::json{{"force", true}} : nlohmann::json::object());
    if (reply) return stop_program(common, *client, flags, std::move(*reply));
    if (!is_no_program(reply.error())) return fail(common, reply.error());
    no_program = reply.error();
  }
  const char* body = flags.force ? R"({"stop":true,"force":true})" : R"({"stop":true})";
  const auto reply = client->call({"POST", lease_target(flags.verb, "/release"), body, {}, *token});
  if (!reply && no_program) return fail_for_both(common, flags.verb.lease, *no_program, reply.error());
  return stop_lease(common, *client, flags, *token, reply);
}

}  // namespace

Action add_stop(Command command, Common& common) {
  auto flags = std::make_shared<StopFlags>();
  add_lease(command, common, flags->verb, true, Offer::Of::leases_and_programs);
  command.flag("--force", flags->force, "Do not resume a paused lease first; its program cannot save its work");
  command.flag("--no-wait", flags->no_wait, "Do not wait until the lease has ended");
  command.footer(
      "The tag of a supervised program stops this program; it is not started\n"
      "again before sublet restart.\n"
      "Sublet does not end a program that it did not start (`sublet hold --pid`,\n"
      "`sublet attach`). The lease of such a program ends once the program holds no\n"
      "VRAM, or has been resumed from a pause. `kill PID` ends the program.");
  return [&common, flags] { return stop(common, *flags); };
}

}  // namespace sublet::cli
