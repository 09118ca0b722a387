// SPDX-License-Identifier: Apache-2.0
// Sessions: the list, one session, and calls on it. session_open.cpp opens them.
#include "http/sessions.h"

#include "base/text.h"
#include "http/body.h"
#include "http/query.h"
#include "http/routes.h"
#include "http/stored.h"
#include "sessions/rules.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

using sessions::Session;
using sessions::Sessions;
using sessions::State;

constexpr std::size_t longest_report = 4096;

json time_or_null(Time time) { return time == Time{} ? json(nullptr) : json(format_rfc3339(time)); }
json time_or_null(const std::optional<Time>& time) { return time ? json(format_rfc3339(*time)) : json(nullptr); }
json text_or_null(std::string_view text) { return text.empty() ? json(nullptr) : json(text); }

json devices_of(const core::Lease* lease, const engine::Engine& engine) {
  json names = json::array();
  if (lease == nullptr) return names;
  for (const std::string& uuid : lease->devices) {
    const core::Device* device = core::find_device(engine.state(), uuid);
    names.push_back(device != nullptr ? device->reading.id() : uuid);
  }
  return names;
}

json pid_of(const core::Lease& lease) {
  const std::int32_t pid = sessions::main_pid(lease);
  return pid != 0 ? json(pid) : json(nullptr);
}

json render_activity(const Session& session, const Sessions& sessions, bool up) {
  if (!up) return nullptr;
  const sessions::Activity seen = sessions.activity(session);
  return {{"state", engine::to_string(seen.state)},
          {"since", seen.state == sessions::Activity::State::idle ? time_or_null(seen.last) : json(nullptr)}};
}

// A field of its lease that a capability has: the idle rule in force, or the interposer.
json lease_field(std::string_view name, const core::Lease& lease, const engine::Engine& engine) {
  const std::string field = engine.capabilities().lease_field(name, lease);
  return field.empty() ? json(nullptr) : json::parse(field, nullptr, false);
}

json render_checkpoint(const Session& session, bool own) {
  if (session.request.checkpoint.empty()) return nullptr;
  const sessions::Checkpoint& checkpoint = session.progress.checkpoint;
  return {{"locator", own && checkpoint.at != Time{} ? json(checkpoint.locator) : json(nullptr)},
          {"at", time_or_null(checkpoint.at)},
          {"bytes", checkpoint.bytes ? json(*checkpoint.bytes) : json(nullptr)},
          {"problem", text_or_null(checkpoint.problem)},
          {"running", checkpoint.running},
          {"every_seconds", session.request.checkpoint_every > Duration{}
                                ? json(session.request.checkpoint_every / std::chrono::seconds(1))
                                : json(nullptr)},
          {"timeout_seconds", session.request.checkpoint_timeout / std::chrono::seconds(1)},
          {"command", own ? json(session.request.checkpoint) : json(nullptr)}};
}

// Finds the session, changes it by `change`, stores it and answers with it.
template <typename Change>
Reply change_session(Call& call, const Change& change) {
  const auto session = find_session(call, call.args[0]);
  if (!session) return problem(session.error());
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  if (const Status done = change(*call.capabilities.sessions, **session); !done) return problem(done.error());
  return store_session(call, 200, **session);
}

Status take_checkpoint(Body& body, sessions::Report& report) {
  const json* given = body.object("checkpoint");
  if (given == nullptr) return {};
  Body checkpoint(*given, "checkpoint.");
  const auto number = checkpoint.integer("number", 1, INT64_MAX);
  report.locator = checkpoint.text("locator", longest_report).value_or("");
  report.problem = checkpoint.text("failed", longest_report);
  report.bytes = checkpoint.integer("bytes", 0, INT64_MAX);
  if (auto finished = checkpoint.finish(); !finished) return finished;
  if (!number) return bad_request("checkpoint.number is missing", "give the number of the run");
  report.checkpoint = static_cast<std::uint64_t>(*number);
  return {};
}

}  // namespace

Result<Sessions*> sessions_of(const Capabilities& capabilities) {
  if (capabilities.sessions != nullptr) return capabilities.sessions;
  return switched_off("sessions are switched off", "sessions.enabled");
}

Result<const Session*> find_session(const Call& call, const std::string& id) {
  const auto sessions = sessions_of(call.capabilities);
  if (!sessions) return sessions.error();
  const auto number = sessions::parse_id(id);
  const std::uint32_t uid = call.request.peer.uid;
  const Session* session = number ? (*sessions)->find(*number) : (*sessions)->find_tag(uid, id);
  if (session == nullptr)
    return not_found(fmt::format("there is no session with the id or tag '{}'", printable(id)),
                     "sublet session ls --all lists all");
  if (call.request.peer.may_act_for(session->uid)) return session;
  return denied(fmt::format("{} belongs to user {}", session->id(), session->user),
                "only the owner or an admin can do this");
}

json render_session(const Session& session, const Sessions& sessions, const engine::Engine& engine,
                    const engine::Peer& viewer) {
  const sessions::Progress& progress = session.progress;
  const core::Lease* lease = sessions.lease_of(session);
  const bool up = lease != nullptr && !lease->ended();
  const bool own = viewer.may_act_for(session.uid);
  const sessions::Request& request = session.request;
  const Bytes given_back = progress.wanted;
  const std::int64_t wanted = !up                    ? request.number("vram_bytes")
                              : given_back > Bytes{} ? given_back.count
                                                     : lease->asked_vram.count;
  return {{"id", session.id()},
          {"user", session.user},
          {"uid", session.uid},
          {"tenant", up ? lease->tenant : request.tenant},
          {"tag", session.tag()},
          {"state", sessions::to_string(progress.state)},
          {"since", format_rfc3339(progress.since)},
          {"why", session.why()},
          {"lease", progress.lease ? json(sublet::to_string(progress.lease)) : json(nullptr)},
          {"lease_state", up ? json(core::to_string(lease->state)) : json(nullptr)},
          {"pid", up ? pid_of(*lease) : json(nullptr)},
          {"vram_bytes", up ? lease->vram.count : wanted},
          {"wanted_vram_bytes", wanted},
          {"exclusive", session.request.exclusive},
          {"devices", devices_of(up ? lease : nullptr, engine)},
          {"tier", up ? core::to_string(lease->tier) : request.text("tier", "standard")},
          {"ttl_seconds", session.request.ttl / std::chrono::seconds(1)},
          {"expires_at", up && !lease->parking ? time_or_null(lease->expires_at) : json(nullptr)},
          {"last_activity", time_or_null(up ? sessions.activity(session).last : progress.last_activity)},
          {"activity", render_activity(session, sessions, up)},
          {"idle", up ? lease_field("idle", *lease, engine) : json(nullptr)},
          {"interposer", up ? lease_field("interposer", *lease, engine) : json(nullptr)},
          {"checkpoint", render_checkpoint(session, own)},
          {"kept_until", time_or_null(progress.kept_until)},
          {"end_reason", text_or_null(sessions::to_string(progress.end))},
          {"exit_status", progress.exit_status ? json(*progress.exit_status) : json(nullptr)},
          {"command", own && session.has_command() ? json(session.request.command.text) : json(nullptr)},
          {"log_path", session.has_command() ? json(sessions.log_path(session)) : json(nullptr)},
          {"warning", text_or_null(sessions.warning(session))},
          {"created_at", format_rfc3339(session.created_at)},
          {"starts", progress.start}};
}

Reply store_session(Call& call, int status, const Session& session) {
  return stored(call.engine, call.remember, "session_changed", status,
                [&] { return render_session(session, *call.capabilities.sessions, call.engine, call.request.peer); });
}

namespace {

Reply get_sessions(Call& call) {
  const auto sessions = sessions_of(call.capabilities);
  if (!sessions) return problem(sessions.error());
  const auto all = query_flag(call.request, "all");
  if (!all) return problem(all.error());
  json rows = json::array();
  for (const Session* session : (*sessions)->all()) {
    if (!call.request.peer.may_act_for(session->uid) || (session->is_closed() && !all->value_or(false))) continue;
    rows.push_back(render_session(*session, **sessions, call.engine, call.request.peer));
  }
  return Response{200, {{"sessions", std::move(rows)}}, {}};
}

Reply get_session(Call& call) {
  const auto wait = query_wait(call.request);
  if (!wait) return problem(wait.error());
  const std::string since = query_value(call.request, "since");
  if (!since.empty() && !sessions::parse_state(since))
    return problem(bad_request(fmt::format("since={} is not a session's state", printable(since)),
                               "one of starting, queued, active, resting, paused, ending, parked, closed"));
  const auto session = find_session(call, call.args[0]);
  if (!session) return problem(session.error());
  Sessions* sessions = call.capabilities.sessions;
  const std::uint64_t number = (*session)->number;
  const auto answer = [sessions, number, &engine = call.engine, peer = call.request.peer]() -> Reply {
    const Session* now = sessions->find(number);
    if (now == nullptr) return problem(not_found(fmt::format("session-{} is forgotten", number), "open a new session"));
    return Response{200, render_session(*now, *sessions, engine, peer), {}};
  };
  const auto news = [sessions, number, since] {
    const Session* now = sessions->find(number);
    return now == nullptr || sessions::to_string(now->progress.state) != since;
  };
  if (*wait <= Duration{} || news()) return answer();
  return WaitForNews{.news = news, .at_most = *wait, .hold = {}, .answer = answer};
}

Reply post_session_touch(Call& call) {
  if (auto finished = Body(call.request.body).finish(); !finished) return problem(finished.error());
  return change_session(call, [](Sessions& sessions, const Session& session) { return sessions.touch(session); });
}

Reply post_session_checkpoint(Call& call) {
  if (auto finished = Body(call.request.body).finish(); !finished) return problem(finished.error());
  return change_session(call, [](Sessions& sessions, const Session& session) { return sessions.checkpoint(session); });
}

Reply post_session_close(Call& call) {
  Body body(call.request.body);
  sessions::Close how{.by = call.request.peer.uid};
  how.park = body.boolean("park").value_or(true);
  how.force = body.boolean("force").value_or(false);
  if (auto finished = body.finish(); !finished) return problem(finished.error());
  return change_session(call, [&](Sessions& sessions, const Session& session) { return sessions.close(session, how); });
}

Reply post_session_resume(Call& call) {
  if (auto finished = Body(call.request.body).finish(); !finished) return problem(finished.error());
  const auto session = find_session(call, call.args[0]);
  if (!session) return problem(session.error());
  if ((*session)->is_closed() && !(*session)->has_command()) {
    if (call.request.peer.uid != (*session)->uid)
      return problem(denied(fmt::format("{} has no command, and its new lease belongs to its user {}", (*session)->id(),
                                        (*session)->user),
                            "only its user can resume it"));
    if (const Status may = call.capabilities.sessions->may_submit_again(**session); !may) return problem(may.error());
    return submit_session(call, **session);
  }
  return change_session(call, [](Sessions& sessions, const Session& found) { return sessions.resume(found); });
}

Reply post_session_report(Call& call) {
  Body body(call.request.body);
  sessions::Report report;
  report.start = static_cast<std::uint64_t>(body.integer("start", 1, INT64_MAX).value_or(0));
  report.failed = body.text("failed", longest_report).value_or("");
  if (const auto status = body.integer("exit_status", 0, 255)) report.exit_status = static_cast<int>(*status);
  report.warning = body.text("warning", longest_report);
  if (const Status taken = take_checkpoint(body, report); !taken) return problem(taken.error());
  if (auto finished = body.finish(); !finished) return problem(finished.error());
  return change_session(call,
                        [&](Sessions& sessions, const Session& session) { return sessions.report(session, report); });
}

constexpr Route table[] = {
    Route{Method::get, "/v1/sessions", Role::user, Scope::read, get_sessions, "all"},
    Route{Method::get, "/v1/sessions/{id}", Role::user, Scope::read, get_session, "wait,since", "Session"},
    Route{Method::post, "/v1/sessions/{id}/touch", Role::user, Scope::submit, post_session_touch, "", "Session"},
    Route{Method::post, "/v1/sessions/{id}/checkpoint", Role::user, Scope::submit, post_session_checkpoint, "",
          "Session"},
    Route{Method::post, "/v1/sessions/{id}/close", Role::user, Scope::submit, post_session_close, "park,force",
          "Session"},
    Route{Method::post, "/v1/sessions/{id}/resume", Role::user, Scope::submit, post_session_resume, "",
          "OpenedSession"},
    Route{Method::post, "/v1/sessions/{id}/report", Role::user, Scope::submit, post_session_report,
          "failed,exit_status,warning,start,checkpoint", "Session"},
};

}  // namespace

const std::span<const Route> session_routes = table;

}  // namespace sublet::http
