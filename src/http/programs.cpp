// SPDX-License-Identifier: Apache-2.0
// Supervised programs: add, read, change, stop, restart, remove; the reports of their keepers.
#include "http/programs.h"
#include "base/text.h"
#include "guard/guard.h"
#include "http/asking.h"
#include "http/body.h"
#include "http/command_fields.h"
#include "http/routes.h"
#include "http/stored.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

using guard::Guard;
using guard::Program;

constexpr std::string_view restarts = "never, on-failure or always";

Error programs_are_off() { return switched_off("supervised programs are switched off", "guard.enabled"); }

json or_null(Bytes bytes) { return bytes > Bytes{} ? json(bytes.count) : json(nullptr); }

json render(const Program& program, const Call& call) {
  const guard::Progress& progress = program.progress;
  const core::Lease* lease = call.engine.find(progress.lease);
  const bool up = program.is_up() && lease != nullptr && !lease->ended();
  const guard::Manifest& manifest = program.manifest;
  const json& request = manifest.request;
  const std::string warning = call.capabilities.guard->warning(program);
  json out{{"tag", program.tag},
           {"user", program.user},
           {"uid", program.uid},
           {"number", program.number},
           {"state", guard::to_string(progress.phase)},
           {"since", format_rfc3339(progress.since)},
           {"why", progress.why},
           {"restart", guard::to_string(manifest.restart)},
           {"starts", progress.start},
           {"restarts", progress.restarts},
           {"lease", progress.lease ? json(to_string(progress.lease)) : json(nullptr)},
           {"lease_state", up ? json(core::to_string(lease->state)) : json(nullptr)},
           {"pid", up && lease->owner.process ? json(lease->owner.process.pid) : json(nullptr)},
           {"memory_bytes", or_null(manifest.ceiling())},
           {"soft_bytes", or_null(manifest.soft_limit())},
           {"vram_bytes", up ? lease->vram.count : manifest.vram().count},
           {"used_bytes", up ? core::use_of(call.engine.state(), lease->id).used.count : 0},
           {"tier", request.value("tier", "standard")},
           {"priority", request.value("priority", 0)},
           {"interposer", request.value("interposer", false)},
           {"share", request.value("share", json(nullptr))},
           {"exit_status", progress.exit_status ? json(*progress.exit_status) : json(nullptr)},
           {"end_reason", progress.end_reason.empty() ? json(nullptr) : json(progress.end_reason)},
           {"next_start_at",
            progress.next_start == Time::never() ? json(nullptr) : json(format_rfc3339(progress.next_start))},
           {"stopping", guard::is_being_ended(progress, up ? lease : nullptr)},
           {"log_path", call.capabilities.guard->log_path(program)},
           {"created_at", format_rfc3339(program.created_at)},
           {"warning", warning.empty() ? json(nullptr) : json(warning)}};
  const bool own = call.request.peer.may_act_for(program.uid);
  out["command"] = own ? json(manifest.command) : json(nullptr);
  out["directory"] = own ? json(manifest.directory) : json(nullptr);
  return out;
}

// The program's owner alone reads its environment, which may have secrets.
json render_whole(const Program& program, const Call& call) {
  json out = render(program, call);
  const engine::Peer& peer = call.request.peer;
  const bool reads_only = peer.scope && *peer.scope == engine::Scope::read;
  out["environment"] = peer.uid == program.uid && !reads_only ? json(program.manifest.environment) : json(nullptr);
  return out;
}

Status take_restart(const json& body, std::optional<guard::Restart>& into) {
  const auto found = body.find("restart");
  if (found == body.end() || found->is_null()) return {};
  into = guard::parse_restart(found->is_string() ? found->get<std::string>() : "");
  if (into) return {};
  return bad_request(fmt::format("restart {} is unknown", printable(found->dump())), fmt::format("use {}", restarts));
}

Status take_replace(const json& body, bool& into) {
  const json replace = body.is_object() ? body.value("replace", json(nullptr)) : json(nullptr);
  if (!replace.is_null() && !replace.is_boolean())
    return bad_request(fmt::format("replace {} is neither true nor false", printable(replace.dump())),
                       "with true, a program of this tag is ended and starts again with the new fields");
  into = replace.is_boolean() && replace.get<bool>();
  return {};
}

// Reads the manifest. The fields of the lease stay in its request, and are checked as those of POST /v1/leases.
Result<Program> read_program(Call& call) {
  const engine::Peer& peer = call.request.peer;
  json body = call.request.body.is_object() ? call.request.body : json::object();
  erase_nulls(body);
  Program program;
  program.uid = peer.uid;
  program.user = peer.user;
  if (const json tag = body.value("tag", json("")); tag.is_string()) program.tag = tag.get<std::string>();
  guard::Manifest& manifest = program.manifest;
  if (auto taken = take_texts(body, "arguments", most_arguments, manifest.arguments); !taken) return taken.error();
  if (auto taken = take_texts(body, "environment", most_arguments, manifest.environment); !taken) return taken.error();
  if (auto checked = check_environment(manifest.environment); !checked) return checked.error();
  if (auto taken = take_limits(body, manifest.limits); !taken) return taken.error();
  std::optional<guard::Restart> restart;
  if (auto taken = take_restart(body, restart); !taken) return taken.error();
  manifest.restart = restart.value_or(guard::Restart::never);
  for (const char* field : {"arguments", "environment", "limits", "restart", "replace"}) body.erase(field);
  Body own(body);
  manifest.directory = own.text("directory", 4096).value_or("");
  manifest.umask = static_cast<int>(own.integer("umask", 0, 0777).value_or(022));
  manifest.command = own.text("command", 4096).value_or("");
  const auto memory = own.integer("memory_bytes", 1, 1LL << 62);
  if (auto finished = own.finish(); !finished && finished.error().detail.find("unknown field") == std::string::npos)
    return finished.error();
  for (const char* field : {"directory", "umask", "command"}) body.erase(field);
  manifest.sized_by_ceiling = memory && !body.contains("vram_bytes");
  if (manifest.sized_by_ceiling) body["vram_bytes"] = *memory;
  for (const char* field : {"owner", "queue", "wait_seconds", "dry_run", "ttl_seconds", "program"}) {
    if (body.contains(field))
      return bad_request(fmt::format("unknown field '{}'", field),
                         "a supervised program has no such choice: leave it out");
  }
  if (auto checked = check_lease_request(call, body); !checked) return checked.error();
  if (manifest.arguments.empty() || manifest.arguments[0].empty())
    return bad_request("arguments is missing", "give the program and its arguments: [\"python3\", \"serve.py\"]");
  if (!manifest.directory.starts_with('/'))
    return bad_request("directory is not an absolute path", "give the directory in which the program starts");
  if (program.tag.empty()) return bad_request("tag is missing", "choose a name for the program, for example \"serve\"");
  body.erase("tag");
  manifest.request = std::move(body);
  return program;
}

// Finds the program, changes it by `change`, stores it and answers with it.
template <typename Change>
Reply change_program(Call& call, const Change& change) {
  const auto program = find_program(call, call.args[0]);
  if (!program) return problem(program.error());
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  const json before = render(**program, call);  // the change may remove it
  if (const Status done = change(*call.capabilities.guard, **program); !done) return problem(done.error());
  return stored(call.engine, call.remember, find_program(call, call.args[0]) ? "program_changed" : "program_removed",
                200, [&] {
                  const auto after = find_program(call, call.args[0]);
                  return after ? render(**after, call) : before;
                });
}

// The program gets its signals though the store is away or slow. The stop is stored with its lease later.
Reply stop_without_store(Call& call, bool force) {
  const auto program = find_program(call, call.args[0]);
  if (!program) return problem(program.error());
  const core::Release stop{
      .lease = (*program)->progress.lease, .force = force, .stop = true, .asked_by = call.request.peer.uid};
  const auto done = call.engine.request(stop, call.remember, [&](const core::Lease&) {
    return engine::Answered{200, render(**program, call).dump()};
  });
  return done ? as_json(*done) : Reply(problem(done.error()));
}

}  // namespace

Result<const Program*> find_program(const Call& call, const std::string& name, bool to_read) {
  Guard* guard = call.capabilities.guard;
  if (guard == nullptr) return programs_are_off();
  const engine::Peer& peer = call.request.peer;
  const auto slash = name.find('/');
  const Program* found = slash != std::string::npos ? guard->find_user(name.substr(0, slash), name.substr(slash + 1))
                                                    : guard->find(peer.uid, name);
  if (found == nullptr && to_read && slash == std::string::npos && peer.role == engine::Role::admin) {
    for (const auto& [key, program] : guard->programs()) {
      if (program.tag != name) continue;
      if (found != nullptr)
        return bad_request(fmt::format("several users have a program '{}'", printable(name)),
                           "name it as USER/TAG; sublet programs lists all");
      found = &program;
    }
  }
  if (found != nullptr && peer.may_act_for(found->uid)) return found;
  if (found != nullptr)
    return denied(fmt::format("program '{}' belongs to user {}", printable(found->tag), found->user),
                  "only the owner or an admin can do this");
  std::vector<std::string> names;
  for (const auto& [key, program] : guard->programs())
    if (key.first == peer.uid) names.push_back(program.tag);
  const std::vector<std::string_view> known(names.begin(), names.end());
  return not_found(fmt::format("there is no program '{}'{}", printable(name), did_you_mean(name, known)),
                   "sublet programs lists all; an admin names another user's as USER/TAG");
}

namespace {

Reply get_programs(Call& call) {
  if (call.capabilities.guard == nullptr) return problem(programs_are_off());
  json rows = json::array();
  for (const auto& [key, program] : call.capabilities.guard->programs())
    if (call.request.peer.may_act_for(program.uid)) rows.push_back(render(program, call));
  return Response{200, {{"programs", std::move(rows)}}, {}};
}

Reply post_program(Call& call) {
  if (call.capabilities.guard == nullptr) return problem(programs_are_off());
  if (call.request.peer.tcp)
    return problem(denied("a program cannot be started over TCP", "use the daemon's Unix socket"));
  bool replaces = false;
  if (auto taken = take_replace(call.request.body, replaces); !taken) return problem(taken.error());
  auto program = read_program(call);
  if (!program) return problem(program.error());
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  Guard& guard = *call.capabilities.guard;
  if (const Program* old = replaces ? guard.find(program->uid, program->tag) : nullptr) {
    if (auto done = guard.replace(*old, std::move(program->manifest), call.request.peer.uid); !done)
      return problem(done.error());
    return stored(call.engine, call.remember, "program_changed", 200, [&] { return render(*old, call); });
  }
  const auto added = call.capabilities.guard->add(std::move(*program));
  if (!added) return problem(added.error());
  return stored(call.engine, call.remember, "program_added", 201, [&] { return render(**added, call); });
}

Reply get_program(Call& call) {
  const auto program = find_program(call, call.args[0], true);
  return program ? Reply(Response{200, render_whole(**program, call), {}}) : problem(program.error());
}

Reply post_program_stop(Call& call) {
  Body body(call.request.body);
  const bool force = body.boolean("force").value_or(false);
  if (auto finished = body.finish(); !finished) return problem(finished.error());
  if (!call.engine.may_decide()) return stop_without_store(call, force);
  return change_program(
      call, [&](Guard& guard, const Program& program) { return guard.stop(program, force, call.request.peer.uid); });
}

Reply post_program_restart(Call& call) {
  if (auto finished = Body(call.request.body).finish(); !finished) return problem(finished.error());
  return change_program(
      call, [&](Guard& guard, const Program& program) { return guard.restart(program, call.request.peer.uid); });
}

Reply post_program_start(Call& call) {
  if (auto finished = Body(call.request.body).finish(); !finished) return problem(finished.error());
  return change_program(call, [&](Guard& guard, const Program& program) { return guard.start(program); });
}

Reply post_program_remove(Call& call) {
  Body body(call.request.body);
  const bool keep = body.boolean("keep_running").value_or(false);
  if (auto finished = body.finish(); !finished) return problem(finished.error());
  return change_program(
      call, [&](Guard& guard, const Program& program) { return guard.remove(program, keep, call.request.peer.uid); });
}

Reply post_program_update(Call& call) {
  json body = call.request.body.is_object() ? call.request.body : json::object();
  erase_nulls(body);
  guard::Update update;
  if (auto taken = take_restart(body, update.restart); !taken) return problem(taken.error());
  body.erase("restart");
  Body fields(body);
  const auto vram = fields.integer("vram_bytes", 1, 1LL << 62);
  const auto memory = fields.integer("memory_bytes", 0, 1LL << 62), soft = fields.integer("soft_bytes", 0, 1LL << 62);
  core::Lease rank;
  const bool has_tier = body.contains("tier"), has_priority = body.contains("priority");
  if (auto taken = take_rank(fields, call.request.peer, rank); !taken) return problem(taken.error());
  if (auto finished = fields.finish(); !finished) return problem(finished.error());
  if (vram) update.vram = Bytes{*vram};
  if (memory) update.ceiling = Bytes{*memory};
  if (soft) update.soft_limit = Bytes{*soft};
  if (has_tier) update.tier = rank.tier;
  if (has_priority) update.priority = rank.priority;
  return change_program(call, [&](Guard& guard, const Program& program) -> Status {
    if (auto checked = check_lease_request(call, guard.changed_request(program, update)); !checked) return checked;
    return guard.update(program, update);
  });
}

Reply post_program_report(Call& call) {
  Body body(call.request.body);
  guard::Report report;
  report.number = static_cast<std::uint64_t>(body.integer("number", 1, INT64_MAX).value_or(0));
  report.start = static_cast<std::uint64_t>(body.integer("start", 1, INT64_MAX).value_or(0));
  report.failed = body.text("failed", 4096).value_or("");
  if (const auto status = body.integer("exit_status", 0, 255)) report.exit_status = static_cast<int>(*status);
  report.warning = body.text("warning", 4096);
  if (auto finished = body.finish(); !finished) return problem(finished.error());
  return change_program(call, [&](Guard& guard, const Program& program) { return guard.report(program, report); });
}

constexpr Route table[] = {
    Route{Method::get, "/v1/programs", Role::user, Scope::read, get_programs},
    Route{Method::post, "/v1/programs", Role::user, Scope::submit, post_program, "ProgramRequest", "Program"},
    Route{Method::get, "/v1/programs/{tag}", Role::user, Scope::read, get_program, "", "WholeProgram"},
    Route{Method::post, "/v1/programs/{tag}/update", Role::user, Scope::submit, post_program_update,
          "vram_bytes,memory_bytes,soft_bytes,restart,tier,priority", "Program"},
    Route{Method::post, "/v1/programs/{tag}/restart", Role::user, Scope::submit, post_program_restart, "", "Program"},
    Route{Method::post, "/v1/programs/{tag}/start", Role::user, Scope::submit, post_program_start, "", "Program"},
    Route{Method::post, "/v1/programs/{tag}/stop", Role::user, Scope::submit, post_program_stop, "force", "Program"}
        .stopping(),
    Route{Method::post, "/v1/programs/{tag}/remove", Role::user, Scope::submit, post_program_remove, "keep_running",
          "Program"},
    Route{Method::post, "/v1/programs/{tag}/report", Role::user, Scope::submit, post_program_report,
          "failed,exit_status,warning,number,start", "Program"},
};

}  // namespace

const std::span<const Route> program_routes = table;

}  // namespace sublet::http
