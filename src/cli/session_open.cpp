// SPDX-License-Identifier: Apache-2.0
#include "cli/session_open.h"

#include "base/size_bounds.h"
#include "base/text.h"
#include "cli/fetch.h"
#include "cli/leave.h"
#include "cli/program_environment.h"
#include "cli/run_flags.h"
#include "cli/session_shell.h"
#include "cli/session_wait.h"
#include "keep/preload.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

// The program, and what it takes over from here. Empty without a command.
Result<json> program_part(const Common& common, const SessionFlags& flags) {
  json body = json::object();
  if (common.command && !common.command->empty() && !flags.pty) {
    if (auto checked = check_utf8("the argument", *common.command); !checked) return checked.error();
    body["arguments"] = *common.command;
    body["command"] = shown_command(*common.command);
  }
  if (!flags.checkpoint_command.empty()) {
    json checkpoint{{"arguments", {"sh", "-c", flags.checkpoint_command}}};
    if (flags.checkpoint_every) checkpoint["every_seconds"] = *flags.checkpoint_every / 1s;
    if (flags.checkpoint_timeout) checkpoint["timeout_seconds"] = *flags.checkpoint_timeout / 1s;
    body["checkpoint"] = std::move(checkpoint);
  }
  if (body.empty()) return {boost::system::in_place_value, std::move(body)};
  auto fields = surroundings();
  if (!fields) return fields;
  auto environment = environment_of(flags.env, flags.env_file, flags.env_all);
  if (!environment) return environment;
  body.update(*fields);
  body["environment"] = std::move(*environment);
  return {boost::system::in_place_value, std::move(body)};
}

Result<json> session_body(const Common& common, SessionFlags& flags, client::Client& client, const json& status) {
  const bool has_command = common.command && !common.command->empty();
  const Consumer consumer = !flags.lease.name.empty() ? Consumer{flags.lease.name}
                            : has_command             ? consumer_of(*common.command)
                                                      : Consumer{"session"};
  auto program = program_part(common, flags);
  if (!program) return program;
  if (const auto taken = take_wish(flags.lease, client, status, nullptr); !taken) return taken.error();
  const auto size = flags.exclusive ? Size() : choose_size(flags.lease, consumer, status, client);
  if (!size) return size.error();
  if (!size->why.empty() && !common.json)
    say(common, fmt::format("sublet: asking for {}: {}", format_size_down(size->bytes), size->why));
  json body = lease_body(flags.lease, consumer.name, size->bytes);
  if (flags.exclusive) body.erase("vram_bytes");  // the daemon knows the size of a whole device
  if (flags.pty) body["command"] = shown_command(*common.command);
  if (!has_command && flags.lease.name.empty()) body["remember"] = false;
  if (flags.exclusive) body["exclusive"] = true;
  body.update(*program);
  return {boost::system::in_place_value, std::move(body)};
}

// The fields of the lease that the session would ask for.
json lease_part(json body) {
  for (const char* field : {"arguments", "environment", "directory", "umask", "limits", "checkpoint", "exclusive"})
    body.erase(field);
  return body;
}

// Flags that do not go together. Returns the exit code after the usage error was printed; nothing if all fit.
std::optional<int> check_open(const Common& common, const SessionFlags& flags) {
  const bool has_command = common.command && !common.command->empty();
  if (flags.lease.dry_run && flags.exclusive)
    return usage_error("--dry-run needs a size, and --exclusive has none", "give --vram");
  if (flags.pty && !has_command)
    return usage_error("--pty needs a program", "for example: sublet session open --vram 8GiB --pty -- bash");
  if (const auto refused = check_share(flags.lease)) return refused;
  if (flags.lease.interposer && !has_command)
    return usage_error("--interposer needs a program: it is preloaded when Sublet starts the program",
                       "give the program after '--', or start it with sublet run --interposer inside the session");
  if (!flags.pty && has_command && needs_terminal(*common.command) && ::isatty(STDIN_FILENO) == 1)
    return usage_error(
        fmt::format("{} reads commands from a terminal, and the program of a session has none: it would end at once",
                    printable(common.command->front())),
        fmt::format("add --pty to use this terminal: sublet session open --pty … -- {}",
                    printable(common.command->front())));
  if (flags.exclusive && (flags.lease.vram || flags.lease.min_vram))
    return usage_error("--exclusive takes whole devices, and so has no --vram or --min-vram",
                       "leave out --exclusive, or the size");
  if (flags.checkpoint_command.empty() && (flags.checkpoint_every || flags.checkpoint_timeout))
    return usage_error(fmt::format("{} needs --checkpoint-cmd",
                                   flags.checkpoint_every ? "--checkpoint-every" : "--checkpoint-timeout"),
                       "for example: --checkpoint-cmd './save.sh $SUBLET_PID'; the command must end only when the "
                       "work is saved");
  return std::nullopt;
}

// The same call with the same key gets the same answer: a session that was opened while its user left is closed.
client::Answer<client::Reply> post_session(const Common& common, client::Client& client, const json& body) {
  const client::Request request{"POST", "/v1/sessions", client::to_text(body), client::new_idempotency_key(), {}};
  Leave leave(client);
  const auto opened = client.call(request, 60s);  // not repeated for ever: sessions may be switched off
  if (!leave.asked()) return opened;
  client::Client another(client.endpoint());
  const auto again = another.call(request, 5s);
  const auto session = again ? client::parse(*again) : client::Answer<json>(again.error());
  if (!session) leave.now(common.quiet, "the answer was not awaited; sublet session ls lists your sessions");
  const std::string id = text_at(*session, "id");
  const auto closed = another.post(session_target(id, "/close"), {{"park", false}});
  leave.now(common.quiet, fmt::format("{} {}", id, closed ? "is closed" : "is open; sublet session close ends it"));
}

}  // namespace

int open_session(const Common& common, SessionFlags flags) {
  if (const auto refused = check_open(common, flags)) return *refused;
  if (flags.lease.interposer)
    if (const auto library = keep::find_interposer(); !library) return fail(common, library.error());
  const bool starts = common.command && !common.command->empty() && !flags.pty;
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto reply = meet(common, *client);
  if (!reply) return fail(common, reply.error());
  const auto status = client::parse(*reply);
  if (!status) return fail(common, status.error());
  const std::string names = left_out(flags.env, *status);
  if (starts && !flags.env_all && flags.env_file.empty() && !names.empty())
    say(common,
        fmt::format("sublet: the program does not get {} of this shell; --env-all passes all variables on", names));
  const auto body = session_body(common, flags, *client, *status);
  if (!body) return fail(common, in_flags(body.error(), "session open"));
  if (flags.lease.dry_run) {
    Look look = look_for(common);
    learn_devices(*status, look);
    return dry_run(common, *client, lease_part(*body), look);
  }
  const auto opened = post_session(common, *client, *body);
  client->set_interrupt({});
  if (!opened) return fail(common, opened.error());
  auto session = client::parse(*opened);
  if (!session) return fail(common, session.error());
  if (!flags.pty)
    return SessionWait(common, std::move(*client)).go(std::move(*session), flags.no_wait, flags.lease.wait);
  SessionWait wait(common, client::Client(client->endpoint()));
  const auto there = wait.arrive(std::move(*session), flags.lease.wait);
  if (const int* code = std::get_if<int>(&there)) return *code;
  if (text_at(std::get<json>(there), "state") != "active") {
    print_error(text_at(std::get<json>(there), "why"),
                "see: sublet session show " + text_at(std::get<json>(there), "id"));
    return kFailed;
  }
  if (flags.lease.interposer)
    if (const auto done = keep::interpose_self(*status); !done) return fail(common, done.error());
  return run_in_terminal(common, std::move(*client), std::get<json>(there), *status, *common.command);
}

void declare_session_open(Command verb, SessionFlags& flags) {
  add_request_flags(verb, flags.lease);
  add_interposer_flags(verb, flags.lease);
  verb.flag("--exclusive", flags.exclusive, "Take whole devices");
  verb.ttl("--ttl", flags.lease.ttl,
           "Time to live (default: sessions.ttl). Activity renews it; without activity the session ends");
  verb.size("--memory", flags.lease.memory, "Ceiling on each device: a program that uses more is ended");
  verb.size("--soft", flags.lease.soft, "Soft limit on each device: above it a program is reported");
  verb.option("--checkpoint-cmd", flags.checkpoint_command,
              "Line for sh -c that saves the program's work, and prints where as its last line")
      .type("COMMAND")
      .not_empty("the line is empty");
  verb.ttl("--checkpoint-every", flags.checkpoint_every, "Run the checkpoint command this often");
  verb.ttl("--checkpoint-timeout", flags.checkpoint_timeout,
           "Time that the checkpoint command has (default: sessions.checkpoint_timeout)");
  verb.repeated("--env", flags.env, "A variable of the program, repeatable; NAME alone takes your value")
      .type("NAME[=VALUE]");
  verb.option("--env-file", flags.env_file, "A file with a variable NAME=VALUE on each line")
      .type("FILE")
      .not_empty("no file is named")
      .offers(Offer::Of::files);
  verb.flag("--env-all", flags.env_all, "All your variables, instead of PATH, HOME, USER, LANG and a few others");
  const Option pty =
      verb.flag("--pty", flags.pty, "Run the program in this terminal; the session ends with the program");
  const Option wait = verb.duration("--wait", flags.lease.wait,
                                    "Give up after this time in the queue, and close the session (exit 124)");
  verb.flag("--no-wait", flags.no_wait, "Return at once, also while the session waits for its memory")
      .excludes(pty)
      .excludes(wait);
  verb.flag("--dry-run", flags.lease.dry_run, "Only print what would happen, and which leases would be paused");
}

}  // namespace sublet::cli
