// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/lease_verb.h"
#include "cli/program_verb.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <variant>

namespace sublet::cli {
namespace {

// The steps until the lease ends.
std::string first_words(const client::Lease& lease) {
  // A session runs its checkpoint command before it ends an active lease.
  const std::string first =
      lease.state == "active" ? "the checkpoint command of the session runs first"
                              : "the lease is " + lease.state + " and is resumed first, once memory is free";
  if (!lease.has_keeper())
    return first + "; then the lease ends, without its program, which Sublet did not start; waiting for the end";
  const std::string why = lease.state == "active" ? "" : ", so that its program can save its work";
  return (lease.stopping ? "" : first + why + "; then ") + "SIGTERM, and after " +
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
  LeaseVerb token;       // only its token file is set
  ProgramChoice choice;  // its tags may be leases too
  bool force = false;
  bool no_wait = false;
};

// A stop that the daemon has accepted.
struct Stopping {
  std::string name;  // as it was given
  bool is_program = false;
  client::Reply reply;
};

int finish_lease(const Common& common, client::Client& client, const StopFlags& flags, const std::string& token,
                 const client::Reply& reply) {
  const auto asked = client::parse_lease(reply.text);
  if (!asked) return fail(common, asked.error());
  if (flags.no_wait || asked->ended()) {
    if (common.json) fmt::print("{}\n", reply.text);
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

int finish_program(const Common& common, client::Client& client, const StopFlags& flags, const std::string& tag,
                   client::Reply reply) {
  auto program = parse_program(std::move(reply));
  if (!program) return fail(common, program.error());
  const std::string words = stopped_words(program->body, flags.no_wait);
  const std::string lease = text_at(program->body, "lease");
  if (!text_at(program->body, "lease_state").empty() && !flags.no_wait) {
    const auto ended = wait_for_end(common, client, {lease, {}}, {});
    if (!ended) return fail(common, ended.error());
    program = parse_program(client.get(program_target(tag)));
    if (!program) return fail(common, program.error());
  }
  if (common.json) fmt::print("{}\n", program->reply.text);
  else say(common, visible(tag + " " + words));
  return kOk;
}

// Asks the daemon to stop the program or the lease. Returns the exit code if it refuses, after the message.
std::variant<Stopping, int> ask(const Common& common, client::Client& client, const StopFlags& flags,
                                const std::string& name, const std::string& token) {
  // A lease's token has no right to a program.
  std::optional<client::Failure> no_program;
  if (token.empty() && !is_lease_id(name)) {
    auto reply = client.post(program_target(name, "/stop"),
                             flags.force ? nlohmann::json{{"force", true}} : nlohmann::json::object());
    if (reply) return Stopping{name, true, std::move(*reply)};
    if (!is_no_program(reply.error())) return fail(common, reply.error());
    no_program = reply.error();
  }
  const char* body = flags.force ? R"({"stop":true,"force":true})" : R"({"stop":true})";
  auto reply = client.call({"POST", lease_target({name, {}}, "/release"), body, {}, token});
  if (reply) return Stopping{name, false, std::move(*reply)};
  return no_program ? fail_for_both(common, name, *no_program, reply.error()) : fail(common, reply.error());
}

int stop(const Common& common, const StopFlags& flags) {
  if (const auto wrong = check_choice(flags.choice, "stop")) return *wrong;
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto token = read_token(flags.token);
  if (!token) return fail(token.error());
  const auto names = tags_of(flags.choice, *client);
  if (!names) return fail(common, names.error());
  if (names->empty()) say(common, "you have no supervised program");
  int code = kOk;
  const auto take = [&code](int its) { code = code == kOk ? its : code; };
  std::vector<Stopping> all;
  for (const std::string& name : *names) {
    auto asked = ask(common, *client, flags, name, *token);
    if (auto* stopping = std::get_if<Stopping>(&asked)) all.push_back(std::move(*stopping));
    else if (take(std::get<int>(asked)); code == kNoDaemon) return code;
  }
  for (Stopping& each : all)
    take(each.is_program ? finish_program(common, *client, flags, each.name, std::move(each.reply))
                         : finish_lease(common, *client, flags, *token, each.reply));
  return code;
}

}  // namespace

Action add_stop(Command command, Common& common) {
  auto flags = std::make_shared<StopFlags>();
  command.option("LEASE", flags->choice.tags, "Ids or tags of leases, or tags of supervised programs")
      .not_empty()
      .type("LEASE")
      .offers(Offer::Of::leases_and_programs);
  add_all(command, flags->choice);
  add_token(command, common, flags->token);
  command.flag("--force", flags->force, "Do not resume a paused lease first; its program cannot save its work");
  command.flag("--no-wait", flags->no_wait, "Do not wait until the lease has ended");
  command.footer(
      "The tag of a supervised program stops this program; it is not started\n"
      "again before sublet start or restart.\n"
      "Sublet does not end a program that it did not start (`sublet hold --pid`,\n"
      "`sublet attach`). The lease of such a program ends once the program holds no\n"
      "VRAM, or has been resumed from a pause. `kill PID` ends the program.");
  return [&common, flags] { return stop(common, *flags); };
}

}  // namespace sublet::cli
