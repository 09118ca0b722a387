// SPDX-License-Identifier: Apache-2.0
// `session`: a lease that lives as long as it is used, and a record that outlives the lease.
#include "base/size_bounds.h"
#include "base/text.h"
#include "cli/fetch.h"
#include "cli/leave.h"
#include "cli/program_environment.h"
#include "cli/render.h"
#include "cli/run_flags.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr Duration session_poll_time = 30s;  // of one request that waits for a change

struct SessionFlags {
  std::string id;
  // open
  LeaseFlags lease;
  bool exclusive = false;
  std::string checkpoint_command;
  std::optional<Duration> checkpoint_every, checkpoint_timeout;
  std::vector<std::string> env;
  std::string env_file;
  bool no_wait = false;  // also of resume
  // ls, close
  bool all = false;
  bool no_park = false;
};

std::string session_target(const std::string& id, const std::string& call = {}) {
  return "/v1/sessions/" + client::encode(id) + call;
}

// --- wait until it is active ---

// Where a session goes: to its memory, or to its end.
enum class Goal { active, end };

bool is_on_its_way(const std::string& state, Goal goal) {
  if (goal == Goal::end) return state == "ending";
  return state == "starting" || state == "queued";
}

// Follows a session until it is active or has ended, and prints it.
class SessionWait {
 public:
  SessionWait(const Common& common, client::Client client, Goal goal = Goal::active)
      : common_(common), client_(std::move(client)), goal_(goal) {}

  int go(json session, bool no_wait);

 private:
  const Common& common_;
  client::Client client_;
  Goal goal_;
  std::string told_;

  void tell(const json& session);
  int print(const json& session);
};

// Each line once.
void SessionWait::tell(const json& session) {
  Look look = look_for(common_);
  std::string line = session_phrase(session, look);
  if (const std::string lease = text_at(session, "lease"); text_at(session, "state") == "queued" && !lease.empty()) {
    client::Client another(client_.endpoint());
    learn_devices(ask_also(another, "/v1/devices"), look);
    const json now = ask_also(another, "/v1/leases/" + client::encode(lease));
    if (member(now, "queue").is_object()) line += ": " + queue_phrase(now, look);
  }
  if (!common_.json && line != std::exchange(told_, line)) say(common_, "sublet: " + line);
}

int SessionWait::print(const json& session) {
  const std::string state = text_at(session, "state"), id = text_at(session, "id");
  if (common_.json) fmt::print("{}\n", client::to_text(session));
  else fmt::print("{}: {}\n", id, state);
  if (goal_ == Goal::end && !common_.json) tell(session);
  if (state != "closed" || goal_ == Goal::end) return kOk;
  if (!common_.json) print_error(text_at(session, "why"), fmt::format("see: sublet session show {}", id));
  return static_cast<int>(number_at(session, "exit_status").value_or(kFailed));
}

int SessionWait::go(json session, bool no_wait) {
  const std::string id = text_at(session, "id");
  const std::string token = text_at(session, "token");
  Leave leave(client_);
  while (!no_wait && is_on_its_way(text_at(session, "state"), goal_)) {
    tell(session);
    const std::string query =
        fmt::format("?wait={}s&since={}", session_poll_time / 1s, client::encode(text_at(session, "state")));
    const auto reply = client_.call({"GET", session_target(id, query), {}, {}, {}}, session_poll_time + 30s);
    if (leave.asked())
      leave.now(common_.quiet, goal_ == Goal::end
                                   ? fmt::format("the end of {} goes on", id)
                                   : fmt::format("{0} goes on waiting; to end it: sublet session close {0}", id));
    if (!reply && !reply.error().passing()) return fail(common_, reply.error());
    if (!reply) {
      (void)client_.pause(500ms);  // the daemon restarts, and the session is in its store
      continue;
    }
    auto now = client::parse(*reply);
    if (!now) return fail(common_, now.error());
    session = std::move(*now);
    if (!token.empty()) session["token"] = token;
  }
  return print(session);
}

// --- open ---

// The program, and what it takes over from here. Empty without a command.
Result<json> program_part(const Common& common, const SessionFlags& flags) {
  json body = json::object();
  if (common.command && !common.command->empty()) {
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
  auto environment = environment_of(flags.env, flags.env_file);
  if (!environment) return environment;
  body.update(*fields);
  body["environment"] = std::move(*environment);
  return {boost::system::in_place_value, std::move(body)};
}

Result<json> session_body(const Common& common, SessionFlags& flags, client::Client& client, const json& status) {
  const bool has_command = common.command && !common.command->empty();
  const std::string name = !flags.lease.name.empty() ? flags.lease.name
                           : has_command             ? consumer_name(*common.command)
                                                     : "session";
  auto program = program_part(common, flags);
  if (!program) return program;
  if (const auto taken = take_wish(flags.lease, client, status, nullptr); !taken) return taken.error();
  const auto size = flags.exclusive ? Size() : choose_size(flags.lease, name, status, client);
  if (!size) return size.error();
  if (!size->why.empty() && !common.json)
    say(common, fmt::format("sublet: asking for {}: {}", format_size_down(size->bytes), size->why));
  json body = lease_body(flags.lease, name, size->bytes);
  if (flags.exclusive) body.erase("vram_bytes");  // the daemon knows the size of a whole device
  if (!has_command && flags.lease.name.empty()) body["remember"] = false;
  if (flags.exclusive) body["exclusive"] = true;
  body.update(*program);
  return {boost::system::in_place_value, std::move(body)};
}

int open_session(const Common& common, SessionFlags flags) {
  if (flags.exclusive && (flags.lease.vram || flags.lease.min_vram))
    return usage_error("--exclusive takes whole devices, and so has no --vram or --min-vram",
                       "leave out --exclusive, or the size");
  if (flags.checkpoint_command.empty() && (flags.checkpoint_every || flags.checkpoint_timeout))
    return usage_error(fmt::format("{} needs --checkpoint-cmd",
                                   flags.checkpoint_every ? "--checkpoint-every" : "--checkpoint-timeout"),
                       "for example: --checkpoint-cmd 'kill -USR1 $SUBLET_PID; echo state.pt'");
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto reply = meet(common, *client);
  if (!reply) return fail(common, reply.error());
  const auto status = client::parse(*reply);
  if (!status) return fail(common, status.error());
  const auto body = session_body(common, flags, *client, *status);
  if (!body) return fail(common, in_flags(body.error(), "session open"));
  // Not repeated for ever: sessions may be switched off.
  const auto opened =
      client->call({"POST", "/v1/sessions", client::to_text(*body), client::new_idempotency_key(), {}}, 60s);
  if (!opened) return fail(common, opened.error());
  auto session = client::parse(*opened);
  if (!session) return fail(common, session.error());
  return SessionWait(common, std::move(*client)).go(std::move(*session), flags.no_wait);
}

// --- one call ---

client::Answer<json> post_to_session(client::Client& client, const std::string& id, const std::string& call,
                                     const json& body) {
  const auto reply = client.post(session_target(id, call), body);
  if (!reply) return reply.error();
  return client::parse(*reply);
}

int touch_session(const Common& common, const std::string& id) {
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto session = post_to_session(*client, id, "/touch", json::object());
  if (!session) return fail(common, session.error());
  if (common.json) fmt::print("{}\n", client::to_text(*session));
  else say(common, "sublet: " + session_phrase(*session, look_for(common)));
  return kOk;
}

int change_session(const Common& common, const SessionFlags& flags, Goal goal, const json& body) {
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  auto session = post_to_session(*client, flags.id, goal == Goal::end ? "/close" : "/resume", body);
  if (!session) return fail(common, session.error());
  return SessionWait(common, std::move(*client), goal).go(std::move(*session), flags.no_wait);
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

// --- flags ---

void declare_session_open(Command verb, SessionFlags& flags) {
  add_request_flags(verb, flags.lease);
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
  verb.flag("--no-wait", flags.no_wait, "Return at once, also while the session waits for its memory");
}

}  // namespace

Action add_session(Command command, Common& common) {
  auto flags = std::make_shared<SessionFlags>();
  const Command open = command.verb("open", "Open a session, and wait until it has its memory");
  const Command list = command.verb("ls", "List your sessions");
  const Command status = command.verb("show", "Show one session");
  const Command touch = command.verb("touch", "Say that the session is in use");
  const Command save = command.verb("checkpoint", "Run the checkpoint command now, and print its locator");
  const Command close = command.verb("close", "End a session; its program is parked if it can be");
  const Command resume = command.verb("resume", "Bring a session back: its parked program, or its command again");
  for (const Command& verb : {status, touch, save, close, resume})
    verb.option("SESSION", flags->id, "Id of the session")
        .required()
        .not_empty()
        .type("SESSION")
        .offers(Offer::Of::sessions);
  declare_session_open(open, *flags);
  list.flag("-a,--all", flags->all, "Closed sessions too");
  close.flag("--no-park", flags->no_park, "Do not keep the program: run its checkpoint command and end it");
  close.flag("--no-wait", flags->no_wait, "Return at once, also while the session is ending");
  resume.flag("--no-wait", flags->no_wait, "Return at once, also while the session waits for its memory");
  save.flag("--no-wait", flags->no_wait, "Return at once");
  for (const Command& verb : {open, status, touch, save, close, resume}) add_json(verb, common);
  add_table_flags(list, common);
  for (const Command& verb : {open, list, status, touch, save, close, resume}) add_common(verb, common);
  command.footer(
      "A session has a lease while it is used: GPU work, `touch` and calls renew it. An\n"
      "idle session is parked in host memory, and `resume` brings it back. With a\n"
      "program after '--', the daemon starts it; without one, add processes by\n"
      "`sublet attach SESSION --pid PID` (or its --tag). See docs/sessions.md.");
  return [&common, flags, open, list, status, touch, save, close, resume] {
    if (open.parsed()) return open_session(common, *flags);
    if (touch.parsed()) return touch_session(common, flags->id);
    if (save.parsed()) return checkpoint_session(common, *flags);
    if (close.parsed())
      return change_session(common, *flags, Goal::end, flags->no_park ? json{{"park", false}} : json::object());
    if (resume.parsed()) return change_session(common, *flags, Goal::active, json::object());
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
    return usage_error("session needs a verb: open, ls, show, touch, checkpoint, close or resume",
                       "for example: sublet session open --vram 8GiB -- jupyter lab");
  };
}

}  // namespace sublet::cli
