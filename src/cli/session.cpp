// SPDX-License-Identifier: Apache-2.0
// `session`: a lease that lives as long as it is used, and a record that outlives the lease.
#include "base/text.h"
#include "cli/fetch.h"
#include "cli/leave.h"
#include "cli/logs.h"
#include "cli/render.h"
#include "cli/session_open.h"
#include "cli/session_wait.h"

#include <fmt/format.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

// --- one call ---

client::Answer<json> post_to_session(client::Client& client, const std::string& id, const std::string& call,
                                     const json& body) {
  const auto reply = client.post(session_target(id, call), body);
  if (!reply) return reply.error();
  return client::parse(*reply);
}

// The sessions that were named, or with --all those of the caller that are not closed.
client::Answer<std::vector<std::string>> named_sessions(const SessionFlags& flags, client::Client& client) {
  if (!flags.all) return flags.ids;
  const auto reply = client.get("/v1/sessions");
  if (!reply) return reply.error();
  const auto body = client::parse(*reply);
  if (!body) return body.error();
  std::vector<std::string> ids;
  for (const json& session : list_at(*body, "sessions"))
    if (number_at(session, "uid").value_or(-1) == ::geteuid()) ids.push_back(text_at(session, "id"));
  return ids;
}

// Asks for all of them first, and then finishes each. Returns the first failure.
int change_sessions(const Common& common, const SessionFlags& flags, const std::string& call, const json& body,
                    const std::function<int(client::Client&, const json&)>& finish) {
  if (flags.all == !flags.ids.empty())
    return usage_error(fmt::format("session{} needs the ids or tags of sessions{}", call,
                                   call == "/close" ? ", or --all instead" : ""),
                       "sublet session ls lists them");
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto ids = named_sessions(flags, *client);
  if (!ids) return fail(common, ids.error());
  if (ids->empty()) say(common, "you have no open session");
  int code = kOk;
  const auto take = [&code](int its) { code = code == kOk ? its : code; };
  std::vector<json> changed;
  for (const std::string& id : *ids) {
    auto session = post_to_session(*client, id, call, body);
    if (session) changed.push_back(std::move(*session));
    else if (take(fail(common, session.error())); code == kNoDaemon) return code;
  }
  for (const json& session : changed) take(finish(*client, session));
  return code;
}

int touch_sessions(const Common& common, const SessionFlags& flags) {
  return change_sessions(common, flags, "/touch", json::object(), [&](client::Client&, const json& session) {
    if (common.json) fmt::print("{}\n", client::to_text(session));
    else say(common, "sublet: " + session_phrase(session, look_for(common)));
    return kOk;
  });
}

int close_sessions(const Common& common, const SessionFlags& flags) {
  json body = json::object();
  if (flags.no_park) body["park"] = false;
  if (flags.force) body["force"] = true;
  return change_sessions(common, flags, "/close", body, [&](client::Client& client, const json& session) {
    SessionWait wait(common, client::Client(client.endpoint()), Goal::end);
    return wait.accept_loss(flags.force).go(session, flags.no_wait);
  });
}

int resume_session(const Common& common, const SessionFlags& flags) {
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  auto session = post_to_session(*client, flags.id, "/resume", json::object());
  if (!session) return fail(common, session.error());
  return SessionWait(common, std::move(*client), Goal::active).go(std::move(*session), flags.no_wait);
}

// Waits until the checkpoint command has ended.
int checkpoint_session(const Common& common, const SessionFlags& flags) {
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  auto session = post_to_session(*client, flags.id, "/checkpoint", json::object());
  if (!session) return fail(common, session.error());
  Leave leave(*client);
  while (!flags.no_wait && flag_at(member(*session, "checkpoint"), "running")) {
    (void)client->pause(100ms);
    const auto reply = client->get(session_target(flags.id));
    if (leave.asked()) leave.now(common.quiet, fmt::format("the checkpoint of {} goes on", flags.id));
    if (!reply) return fail(common, reply.error());
    session = client::parse(*reply);
    if (!session) return fail(common, session.error());
  }
  if (common.json) fmt::print("{}\n", client::to_text(*session));
  const json& checkpoint = member(*session, "checkpoint");
  const std::string problem = text_at(checkpoint, "problem");
  if (!common.json && !problem.empty()) print_error(problem, fmt::format("see: sublet session show {}", flags.id));
  else if (!common.json && !flags.no_wait) fmt::print("{}\n", text_at(checkpoint, "locator"));
  return problem.empty() ? kOk : kFailed;
}

}  // namespace

Action add_session(Command command, Common& common) {
  auto flags = std::make_shared<SessionFlags>();
  const Command open = command.verb("open", "Open a session, and wait until it has its memory");
  const Command list = command.verb("ls", "List your sessions");
  const Command status = command.verb("show", "Show one session");
  const Command logs = command.verb("logs", "Print the output of the session's program");
  const Command touch = command.verb("touch", "Say that sessions are in use");
  const Command save = command.verb("checkpoint", "Run the checkpoint command now, and print its locator");
  const Command close = command.verb("close", "End sessions; their programs are parked if they can be");
  const Command resume = command.verb("resume", "Bring a session back: its parked program, or its command again");
  for (const Command& verb : {status, logs, save, resume})
    verb.option("SESSION", flags->id, "Id or tag of the session")
        .required()
        .not_empty()
        .type("SESSION")
        .offers(Offer::Of::sessions);
  for (const Command& verb : {touch, close})
    verb.option("SESSION", flags->ids, "Ids or tags of sessions")
        .not_empty()
        .type("SESSION")
        .offers(Offer::Of::sessions);
  declare_session_open(open, *flags);
  auto log_flags = std::make_shared<LogsFlags>();
  declare_logs(logs, log_flags);
  list.flag("-a,--all", flags->all, "Closed sessions too");
  close.flag("--all", flags->all, "All sessions of yours that are not closed");
  close.flag("--force", flags->force, "End the program although its checkpoint command fails");
  close.flag("--no-park", flags->no_park, "Do not keep the program: run its checkpoint command and end it");
  close.flag("--no-wait", flags->no_wait, "Return at once, also while the session is ending");
  resume.flag("--no-wait", flags->no_wait, "Return at once, also while the session waits for its memory");
  save.flag("--no-wait", flags->no_wait, "Return at once");
  for (const Command& verb : {open, status, logs, touch, save, close, resume}) add_json(verb, common);
  add_table_flags(list, common);
  for (const Command& verb : {open, list, status, logs, touch, save, close, resume}) add_common(verb, common);
  command.footer(
      "A session has a lease while it is used: GPU work, `touch` and calls renew it. An\n"
      "idle session is parked in host memory, and `resume` brings it back. With a\n"
      "program after '--', the daemon starts it; without one, add processes by\n"
      "`sublet attach SESSION --pid PID` (or its --tag). See docs/sessions.md.");
  return [&common, flags, log_flags, open, list, status, logs, touch, save, close, resume] {
    if (open.parsed()) return open_session(common, *flags);
    if (touch.parsed()) return touch_sessions(common, *flags);
    if (logs.parsed()) {
      log_flags->name = flags->id;
      log_flags->target = session_target(flags->id);
      return print_log(common, *log_flags);
    }
    if (save.parsed()) return checkpoint_session(common, *flags);
    if (close.parsed()) return close_sessions(common, *flags);
    if (resume.parsed()) return resume_session(common, *flags);
    if (status.parsed())
      return show(common, session_target(flags->id), [&](const json& session, client::Client&) -> Result<std::string> {
        return render_session(session, look_for(common));
      });
    if (list.parsed())
      return show(
          common, flags->all ? "/v1/sessions?all=true" : "/v1/sessions", [&](const json& body, client::Client&) {
            return with_remark(common, render_sessions(body, common, look_for(common)),
                               !list_at(body, "sessions").empty() ? ""
                               : flags->all
                                   ? "no session: sublet session open opens one"
                                   : "no open session: sublet session open opens one, and ls --all lists closed ones");
          });
    return usage_error("session needs a verb: open, ls, show, logs, touch, checkpoint, close or resume",
                       "for example: sublet session open --vram 8GiB -- jupyter lab");
  };
}

}  // namespace sublet::cli
