// SPDX-License-Identifier: Apache-2.0
#include "http/routes.h"

#include "base/hash.h"
#include "base/text.h"
#include "http/body.h"
#include "http/peer.h"
#include "http/resources.h"
#include "http/secrets.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

using engine::Role;
using engine::Scope;

constexpr std::array table{
    Route{Method::get, "/", Role::nobody, get_page, false},
    Route{Method::get, "/page/{set}/{file}", Role::nobody, get_page_file, false},
    Route{Method::get, "/page/{set}/{folder}/{file}", Role::nobody, get_page_file, false},
    Route{Method::get, "/healthz", Role::nobody, get_health, false},
    Route{Method::get, "/metrics", Role::user, get_metrics, false},
    Route{Method::get, "/v1/openapi.json", Role::user, get_contract, false},
    Route{Method::get, "/v1/status", Role::user, get_status, false},
    Route{Method::get, "/v1/devices", Role::user, get_devices, false},
    Route{Method::get, "/v1/processes", Role::user, get_processes, false, nullptr, Scope::read, "lease"},
    Route{Method::get, "/v1/queue", Role::user, get_queue, true, nullptr, Scope::read, "limit,after"},
    Route{Method::get, "/v1/consumers", Role::user, get_consumers},
    Route{Method::post, "/v1/consumers/{name}/grant", Role::user, post_grant, true, nullptr, Scope::submit},
    Route{Method::del, "/v1/consumers/{name}/grant", Role::user, delete_grant, true, nullptr, Scope::submit},
    Route{Method::get, "/v1/events", Role::user, get_events, true, nullptr, Scope::read,
          "lease,type,heartbeat,follow,readings"},
    Route{Method::post, "/v1/events/targets/{name}/test", Role::admin, post_event_test, true, nullptr, Scope::admin},
    Route{Method::get, "/v1/report", Role::user, get_report, true, nullptr, Scope::read, "since,until,by,whole"},
    Route{Method::get, "/v1/tokens", Role::user, get_tokens, true, nullptr, Scope::admin},
    Route{Method::post, "/v1/tokens", Role::user, post_token, true, nullptr, Scope::admin},
    Route{Method::del, "/v1/tokens/{id}", Role::user, delete_token, true, nullptr, Scope::admin},
    Route{Method::get, "/v1/leases", Role::user, get_leases, true, nullptr, Scope::read, "limit,after,all"},
    Route{Method::post, "/v1/leases", Role::user, post_lease, true, replay_lease, Scope::submit, "", Grants::requested},
    Route{Method::get, "/v1/leases/{id}", Role::user, get_lease, true, nullptr, Scope::read, "wait,since,stopping"},
    Route{Method::get, "/v1/leases/{id}/why", Role::user, get_why},
    Route{Method::post, "/v1/leases/{id}/claim", Role::user, post_claim, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/attach", Role::user, post_attach, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/renew", Role::user, post_renew, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/touch", Role::user, post_touch, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/resize", Role::user, post_resize, true, nullptr, Scope::submit, "",
          Grants::always},
    Route{Method::post, "/v1/leases/{id}/release", Role::user, post_release, true, nullptr, Scope::submit, "",
          Grants::to_waiters},
    Route{Method::post, "/v1/leases/{id}/pause", Role::user, post_pause, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/resume", Role::user, post_resume, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/preempt", Role::user, post_preempt, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/free", Role::user, post_free, true, replay_lease, Scope::submit, "", Grants::requested},
    Route{Method::get, "/v1/leases/{id}/cooperate", Role::user, get_cooperate, true, nullptr, Scope::submit,
          "wait,since"},
    Route{Method::post, "/v1/leases/{id}/cooperate", Role::user, post_cooperate, true, nullptr, Scope::submit},
    Route{Method::del, "/v1/leases/{id}/cooperate", Role::user, delete_cooperate, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/cooperate/answer", Role::user, post_cooperate_answer, true, nullptr,
          Scope::submit},
    Route{Method::get, "/v1/ledger", Role::user, get_ledger},
    Route{Method::get, "/v1/programs", Role::user, get_programs},
    Route{Method::post, "/v1/programs", Role::user, post_program, true, nullptr, Scope::submit},
    Route{Method::get, "/v1/programs/{tag}", Role::user, get_program},
    Route{Method::get, "/v1/programs/{tag}/log", Role::user, get_program_log, true, nullptr, Scope::read,
          "lines,since,follow,marks"},
    Route{Method::post, "/v1/programs/{tag}/update", Role::user, post_program_update, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/programs/{tag}/restart", Role::user, post_program_restart, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/programs/{tag}/start", Role::user, post_program_start, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/programs/{tag}/stop", Role::user, post_program_stop, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/programs/{tag}/remove", Role::user, post_program_remove, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/programs/{tag}/report", Role::user, post_program_report, true, nullptr, Scope::submit},
    Route{Method::get, "/v1/sessions", Role::user, get_sessions, true, nullptr, Scope::read, "all"},
    Route{Method::post, "/v1/sessions", Role::user, post_session, true, nullptr, Scope::submit, "", Grants::requested},
    Route{Method::get, "/v1/sessions/{id}", Role::user, get_session, true, nullptr, Scope::read, "wait,since"},
    Route{Method::get, "/v1/sessions/{id}/log", Role::user, get_session_log, true, nullptr, Scope::read,
          "lines,since,follow,marks"},
    Route{Method::post, "/v1/sessions/{id}/touch", Role::user, post_session_touch, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/sessions/{id}/checkpoint", Role::user, post_session_checkpoint, true, nullptr,
          Scope::submit},
    Route{Method::post, "/v1/sessions/{id}/close", Role::user, post_session_close, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/sessions/{id}/resume", Role::user, post_session_resume, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/sessions/{id}/report", Role::user, post_session_report, true, nullptr, Scope::submit},
    Route{Method::get, "/v1/stacks", Role::user, get_stacks},
    Route{Method::post, "/v1/stacks", Role::admin, post_stack, true, nullptr, Scope::admin},
    Route{Method::get, "/v1/stacks/{name}", Role::user, get_stack, true, nullptr, Scope::read, "wait,since"},
    Route{Method::del, "/v1/stacks/{name}", Role::admin, delete_stack, true, nullptr, Scope::admin},
    Route{Method::post, "/v1/stacks/{name}/set", Role::admin, post_stack_set, true, nullptr, Scope::admin},
    Route{Method::post, "/v1/stacks/{name}/acquire", Role::user, post_stack_acquire, true, replay_stack, Scope::submit},
    Route{Method::post, "/v1/stacks/{name}/renew", Role::user, post_stack_renew, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/stacks/{name}/restart", Role::user, post_stack_restart, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/stacks/{name}/pull", Role::admin, post_stack_pull, true, nullptr, Scope::admin},
    Route{Method::post, "/v1/stacks/{name}/release", Role::user, post_stack_release, true, nullptr, Scope::submit, "",
          Grants::to_waiters},
    Route{Method::get, "/v1/stacks/{name}/logs", Role::user, get_stack_logs, true, nullptr, Scope::read,
          "lines,service,follow"},
    Route{Method::get, "/v1/verdicts", Role::user, get_verdicts, true, nullptr, Scope::read, "all,pid"},
    Route{Method::get, "/v1/verdicts/{id}", Role::user, get_verdict},
    Route{Method::get, "/v1/enforcer", Role::user, get_enforcer},
    Route{Method::get, "/v1/enforcer/preview", Role::admin, get_enforcer_preview, true, nullptr, Scope::read,
          "since,subject"},
    Route{Method::post, "/v1/approvals", Role::admin, post_approval, true, nullptr, Scope::admin},
    Route{Method::del, "/v1/approvals/{id}", Role::admin, delete_approval, true, nullptr, Scope::admin},
    Route{Method::post, "/v1/policies", Role::admin, post_policy, true, nullptr, Scope::admin},
    Route{Method::del, "/v1/policies/{id}", Role::admin, delete_policy, true, nullptr, Scope::admin},
};

// The first path segment of `rest`, removed from it together with its slash.
std::string_view take_segment(std::string_view& rest) {
  rest.remove_prefix(1);
  const auto end = std::min(rest.find('/'), rest.size());
  const auto segment = rest.substr(0, end);
  rest.remove_prefix(end);
  return segment;
}

std::optional<std::vector<std::string>> match(std::string_view pattern, std::string_view path) {
  std::vector<std::string> args;
  while (!pattern.empty() && !path.empty()) {
    if (path[0] != '/') return std::nullopt;
    const auto wanted = take_segment(pattern);
    const auto given = take_segment(path);
    if (wanted.starts_with('{')) {
      if (given.empty()) return std::nullopt;
      args.push_back(url_decode(given));  // a tag may hold a slash: only now that the path is in pieces
    } else if (wanted != given) {
      return std::nullopt;
    }
  }
  if (!pattern.empty() || !path.empty()) return std::nullopt;
  return args;
}

// Unknown parameters are refused, so that a misspelt name is not ignored.
Status known_words(const Route& route, const Request& request) {
  std::vector<std::string_view> known;
  for (std::string_view rest = request.query.empty() ? "" : route.query; !rest.empty();) {
    known.push_back(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(known.back().size() + 1, rest.size()));
  }
  for (const auto& [name, value] : request.query) {
    if (std::ranges::count(known, name) > 0) continue;
    return bad_request(fmt::format("unknown parameter '{}' of {} {}{}", printable(name), to_string(route.method),
                                   printable(request.path), did_you_mean(name, known)),
                       known.empty() ? std::string("the call takes no parameters: leave out '?' and the text after it")
                                     : fmt::format("known parameters: {}", fmt::join(known, ", ")));
  }
  // Calls with a body check its fields themselves; the other calls take no field.
  if (route.method == Method::post) return {};
  return Body(request.body).finish();
}

// Distinguishes a retry from another request with the same key.
std::string fingerprint(const Request& request) {
  return fmt::format("{:016x}", fnv1a(request.body.dump(), fnv1a(request.path, fnv1a(to_string(request.method)))));
}

Reply call(const Route& route, const Request& request, engine::Engine& engine, std::vector<std::string> args,
           Capabilities capabilities) {
  Call made{request, engine, std::move(args), {}, capabilities};
  if (!request.idempotency_key.empty()) {
    made.remember = {.uid = request.peer.uid,
                     .key = store::hash_secret(request.idempotency_key),
                     .fingerprint = fingerprint(request)};
  }
  if (request.method == Method::get) return route.handler(made);
  const engine::Engine::Transaction transaction(engine);
  return route.handler(made);
}

// A key that was used before: the stored answer, or a refusal if it was another request's.
Reply replay(const Route& route, const Request& request, engine::Engine& engine, const std::vector<std::string>& args,
             Capabilities capabilities) {
  return Later{[&route, request, &engine, args, capabilities](const std::function<void(Reply)>& done) {
    engine.remembered(
        request.peer.uid, store::hash_secret(request.idempotency_key),
        [&route, request, &engine, args, capabilities, done](const Result<std::optional<store::Remembered>>& found) {
          if (!found) return done(problem(found.error()));
          // The fast check was a false alarm: nothing was stored under this key.
          if (!*found) return done(call(route, request, engine, args, capabilities));
          const store::Remembered& answer = **found;
          if (answer.fingerprint != fingerprint(request)) {
            return done(problem(
                {Code::Stale, fmt::format("Idempotency-Key '{}' was used for another request", request.idempotency_key),
                 "use a new key for each request, and the same key only to retry the same request"}));
          }
          if (route.replay == nullptr) {
            json body = json::parse(answer.body, nullptr, false);
            unseal(body, request);
            return done(Response{answer.status, std::move(body), {}});
          }
          Call again{request, engine, args, {}, capabilities};
          done(route.replay(again, answer));
        });
  }};
}

// The refusal for a caller without the right to make this call, with the right that is needed.
std::optional<Response> refuse(const Route& route, const Request& request) {
  const engine::Peer& peer = request.peer;
  if (peer.role < std::min(route.least_role, Role::user)) {
    if (peer.role == engine::Role::unknown) return problem(role_unknown(peer.user));
    if (!peer.tcp && peer.uid == engine::Peer{}.uid) {
      return problem(denied(
          fmt::format(
              "the kernel does not identify the caller: uid {} stands for unknown users and may only read /healthz",
              peer.uid),
          "run the caller under its own account, in the user namespace of the daemon"));
    }
    if (!peer.tcp && peer.pid == 0) {
      return problem(
          denied("the daemon runs in a pid namespace that does not show the caller, which may only read /healthz",
                 "start the daemon's container with --pid=host"));
    }
    if (!peer.tcp) {
      return problem(denied(fmt::format("user {} may only read /healthz", peer.user),
                            "ask an admin to add the account to the group 'sublet'"));
    }
    return problem(401, denied("this call needs a valid access token over TCP",
                               "create a token (sublet token create) and set SUBLET_TOKEN_FILE to its file (in HTTP: "
                               "Authorization: Bearer TOKEN)"));
  }
  const bool for_admins = peer.role < route.least_role;
  if (for_admins && peer.scope.value_or(Scope::admin) >= Scope::admin) {
    return problem(denied(fmt::format("user {} is not an admin, and only an admin can do this", peer.user),
                          "ask an admin, or use sudo"));
  }
  if (!peer.scope) return std::nullopt;
  // A lease's token holds the lease, which is more than reading.
  const Scope needed =
      for_admins ? Scope::admin : std::max(route.scope, request.lease_token.empty() ? Scope::read : Scope::submit);
  if (*peer.scope >= needed) return std::nullopt;
  return problem(denied(fmt::format("the access token has the scope {}, but this call needs {}", to_string(*peer.scope),
                                    to_string(needed)),
                        fmt::format("create another token: sublet token create --scope {}", to_string(needed))));
}

Grants grants_of(const Request& request) {
  const auto route = std::ranges::find_if(table, [&](const Route& one) {
    return one.grants != Grants::never && one.method == request.method && match(one.path, request.path);
  });
  return route == table.end() ? Grants::never : route->grants;
}

// True if a device has as many free bytes as the request asks for, as far as the last snapshot tells.
bool has_requested(const Request& request, const engine::Engine& engine) {
  const auto bytes = [&](const char* field) {
    const auto found = request.body.find(field);
    return found != request.body.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
  };
  if (request.body.contains("program")) return true;  // its memory may be kept, and is free only for this request
  const std::int64_t least = bytes("min_vram_bytes") > 0 ? bytes("min_vram_bytes") : bytes("vram_bytes");
  const core::State& state = engine.state();
  return std::ranges::any_of(state.devices.by_uuid, [&](const auto& device) {
    return core::free_on(state, device.second, engine.rules(), engine.now()).count >= least;
  });
}

}  // namespace

std::span<const Route> routes() { return table; }

Response refused_method(std::string_view path, std::string_view method) {
  std::vector<std::string_view> paths, methods;
  for (const Route& route : table) {
    paths.push_back(route.path);
    if (!match(route.path, path)) continue;
    methods.push_back(to_string(route.method));
    if (route.method == Method::get) methods.push_back("HEAD");
  }
  if (methods.empty()) {
    return problem(not_found(fmt::format("{} does not exist{}", printable(path), did_you_mean(path, paths)),
                             "GET /v1/openapi.json lists the paths"));
  }
  const std::string allowed = fmt::format("{}", fmt::join(methods, ", "));
  Response response = problem(
      405, bad_request(fmt::format("{} takes the method {}, not {}", printable(path), allowed, printable(method)),
                       fmt::format("use {}; GET /v1/openapi.json describes each method", allowed)));
  response.allow = allowed;
  return response;
}

bool may_be_granted(const Request& request, const engine::Engine& engine) {
  if (request.method != Method::post || request.peer.role < Role::user || !request.body.is_object()) return false;
  switch (grants_of(request)) {
    case Grants::never: return false;
    case Grants::requested: return has_requested(request, engine);
    case Grants::to_waiters: return engine.state().queue.size() > 0;
    case Grants::always: return true;
  }
  return false;
}

Reply dispatch(const Request& request, engine::Engine& engine, Capabilities capabilities) {
  for (const Route& route : table) {
    auto args = match(route.path, request.path);
    if (!args || route.method != request.method) continue;
    if (auto refusal = refuse(route, request)) return *refusal;
    if (auto known = known_words(route, request); !known) return problem(known.error());
    // A stop signals its program without a store; the handlers refuse the rest.
    const bool may_stop = route.handler == post_release || route.handler == post_program_stop;
    if (route.of_leases && !may_stop && !engine.store_problem().empty()) {
      return problem(unavailable("the store is not usable: " + engine.store_problem(),
                                 "acknowledged changes are kept; 'sublet status' shows when the store is back"));
    }
    const bool keyed = request.method != Method::get && !request.idempotency_key.empty();
    if (keyed && engine.maybe_remembered(request.peer.uid, store::hash_secret(request.idempotency_key))) {
      return replay(route, request, engine, *args, capabilities);
    }
    return call(route, request, engine, std::move(*args), capabilities);
  }
  return refused_method(request.path, to_string(request.method));
}

}  // namespace sublet::http
