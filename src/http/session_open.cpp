// SPDX-License-Identifier: Apache-2.0
// Opening a session. With a command, its keeper asks for the lease; without a command, the call does.
#include "base/size_bounds.h"
#include "base/text.h"
#include "http/asking.h"
#include "http/body.h"
#include "http/command_fields.h"
#include "http/programs.h"
#include "http/routes.h"
#include "http/sessions.h"
#include "idle/idle.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

using namespace std::chrono_literals;
using sessions::Session;

constexpr std::int64_t longest_ttl = 365LL * 86400;  // seconds
constexpr std::int64_t longest_checkpoint = 86400;   // seconds

// The checkpoint command, and when it runs.
Status take_checkpoint(const json& body, sessions::Request& into) {
  const auto found = body.find("checkpoint");
  if (found == body.end() || found->is_null()) return {};
  if (!found->is_object())
    return bad_request("checkpoint is not an object", "for example {\"arguments\": [\"sh\", \"-c\", \"./save.sh\"]}");
  json fields = *found;
  if (auto taken = take_texts(fields, "arguments", most_arguments, into.checkpoint); !taken) return taken;
  fields.erase("arguments");
  Body own(fields, "checkpoint.");
  const auto every = own.integer("every_seconds", 1, longest_ttl);
  const auto timeout = own.integer("timeout_seconds", 1, longest_checkpoint);
  if (auto finished = own.finish(); !finished) return finished;
  if (into.checkpoint.empty() || into.checkpoint[0].empty())
    return bad_request("checkpoint.arguments is missing", "give the command and its arguments");
  into.checkpoint_every = std::chrono::seconds(every.value_or(0));
  if (timeout) into.checkpoint_timeout = std::chrono::seconds(*timeout);
  return {};
}

// The fields of the lease are left in `body`.
Status take_command(json& body, sessions::Request& into) {
  sessions::Command& command = into.command;
  if (auto taken = take_texts(body, "arguments", most_arguments, command.arguments); !taken) return taken;
  if (auto taken = take_texts(body, "environment", most_arguments, command.environment); !taken) return taken;
  if (auto checked = check_environment(command.environment); !checked) return checked;
  if (auto taken = take_limits(body, command.limits); !taken) return taken;
  for (const char* field : {"arguments", "environment", "limits"}) body.erase(field);
  json fields = json::object();
  for (const char* field : {"directory", "umask", "command", "exclusive", "ttl_seconds", "tag"})
    if (body.contains(field)) fields[field] = body[field];
  Body own(fields);
  command.directory = own.text("directory", 4096).value_or("");
  command.umask = static_cast<int>(own.integer("umask", 0, 0777).value_or(022));
  command.text = own.text("command", 4096).value_or("");
  into.exclusive = own.boolean("exclusive").value_or(false);
  into.tag = own.label("tag", true).value_or("");
  if (const auto ttl = own.integer("ttl_seconds", 1, longest_ttl)) into.ttl = std::chrono::seconds(*ttl);
  if (auto finished = own.finish(); !finished) return finished;
  for (const auto& [field, value] : fields.items()) body.erase(field);
  if (!command.arguments.empty() && command.arguments[0].empty())
    return bad_request("arguments has no program", "give the program and its arguments, or leave arguments out");
  const bool runs = !command.arguments.empty() || !into.checkpoint.empty();
  if (runs && !command.directory.starts_with('/'))
    return bad_request("directory is not an absolute path", "give the directory in which the command starts");
  return {};
}

// The devices that the request names keep their names, whatever numbers they have later.
Status take_whole_devices(Call& call, const sessions::Sessions& sessions, sessions::Request& request) {
  core::Lease named;
  Body body(request.lease);
  named.device_count = static_cast<int>(request.number("devices", 1));
  if (auto taken = take_device(body, call.engine, named); !taken) return taken;
  if (auto taken = take_gpu_spec(body, call.engine, named); !taken) return taken;
  if (!named.wanted_devices.empty()) request.lease["device"] = fmt::format("{}", fmt::join(named.wanted_devices, ","));
  request.lease.erase("min_vram_bytes");
  const auto whole = sessions.whole_devices(request);
  if (!whole) return whole.error();
  request.lease["vram_bytes"] = whole->count;
  return {};
}

Result<Session> read_session(Call& call, const sessions::Sessions& sessions) {
  const engine::Peer& peer = call.request.peer;
  json body = call.request.body.is_object() ? call.request.body : json::object();
  erase_nulls(body);
  Session session;
  session.uid = peer.uid;
  session.user = peer.user;
  sessions::Request& request = session.request;
  request.ttl = sessions.options().ttl;
  request.checkpoint_timeout = sessions.options().checkpoint_timeout;
  for (const char* field : {"owner", "queue", "wait_seconds", "dry_run", "program", "session"})
    if (body.contains(field))
      return bad_request(fmt::format("unknown field '{}'", field), "a session has no such choice: leave it out");
  if (auto taken = take_checkpoint(body, request); !taken) return taken.error();
  body.erase("checkpoint");
  if (auto taken = take_command(body, request); !taken) return taken.error();
  request.lease = std::move(body);
  if (request.exclusive)
    if (auto taken = take_whole_devices(call, sessions, request); !taken) return taken.error();
  json checked = request.lease;
  if (!request.tag.empty()) checked["tag"] = request.tag;
  if (auto good = check_lease_request(call, checked); !good) return good.error();
  if (const auto asked = read_lease_request(call, checked)) request.tenant = asked->submit.lease.tenant;
  return session;
}

Status check_tag(const engine::Engine& engine, const Session& session) {
  const core::Lease* holder = core::find_tag(engine.state(), session.uid, session.tag());
  if (holder == nullptr) return {};
  return Error{Code::InUse,
               fmt::format("the tag '{}' belongs to {}, which is {}", printable(session.tag()), to_string(holder->id),
                           core::to_string(holder->state)),
               "release that lease first, or choose another tag"};
}

}  // namespace

Reply submit_session(Call& call, Session session) {
  engine::Engine& engine = call.engine;
  sessions::Sessions& sessions = *call.capabilities.sessions;
  json body = session.request.lease;
  body["tag"] = session.tag();
  body["ttl_seconds"] = session.request.ttl / 1s;
  if (session.request.exclusive)
    if (const auto whole = sessions.whole_devices(session.request)) body["vram_bytes"] = whole->count;
  auto asked = read_lease_request(call, body);
  if (!asked) return problem(asked.error());
  if (auto more = check_lease_limit(engine, call.request.peer); !more) return problem(more.error());
  if (auto apart = check_nesting(call, *asked); !apart) return problem(apart.error());
  const std::uint64_t number = session.number;
  const bool is_new = sessions.find(number) == nullptr;
  auto made = submit_with_token(engine, asked->submit, call.remember, asked->token, [&](const core::Lease& lease) {
    if (is_new) sessions.add(std::move(session));
    sessions.submitted(number, lease);
    if (call.capabilities.idle != nullptr) call.capabilities.idle->submitted(lease, asked->idle, true);
    const json shown = render_session(*sessions.find(number), sessions, engine, call.request.peer);
    return std::pair(is_new ? 201 : 200, shown.dump());
  });
  if (!made) {
    Error refusal = made.error();
    if (!is_new && refusal.code == Code::TooLarge) refusal.code = Code::Stale;  // it fitted when it was opened
    return problem(refusal);
  }
  engine.access().not_held(made->lease);
  return std::move(made->response);
}

namespace {

Reply post_session(Call& call) {
  const auto sessions = sessions_of(call.capabilities);
  if (!sessions) return problem(sessions.error());
  auto session = read_session(call, **sessions);
  if (!session) return problem(session.error());
  if (call.request.peer.tcp && (session->has_command() || !session->request.checkpoint.empty()))
    return problem(denied("a session with a command cannot be opened over TCP", "use the daemon's Unix socket"));
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  const auto number = (*sessions)->next_number(session->uid, session->user);
  if (!number) return problem(number.error());
  session->number = *number;
  if (const Status free = check_tag(call.engine, *session); !free) return problem(free.error());
  if (!session->has_command()) return submit_session(call, std::move(*session));
  return store_session(call, 201, (*sessions)->add(std::move(*session)));
}

constexpr Route table[] = {
    Route{Method::post, "/v1/sessions", Role::user, Scope::submit, post_session, "SessionRequest", "OpenedSession"}
        .granting(Grants::requested),
};

}  // namespace

const std::span<const Route> session_open_routes = table;

}  // namespace sublet::http
