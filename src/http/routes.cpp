// SPDX-License-Identifier: Apache-2.0
#include "http/routes.h"

#include "base/hash.h"
#include "base/text.h"
#include "http/body.h"
#include "http/peer.h"
#include "http/secrets.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

constexpr std::array tables{&page_routes,          &table_routes,    &metrics_routes,      &contract_routes,
                            &list_routes,          &consumer_routes, &grant_routes,        &event_routes,
                            &event_target_routes,  &report_routes,   &token_routes,        &lease_routes,
                            &action_routes,        &preempt_routes,  &cooperate_routes,    &program_routes,
                            &log_routes,           &session_routes,  &session_open_routes, &stack_routes,
                            &stack_acquire_routes, &enforcer_routes, &maintenance_routes,
                            &tenant_routes};

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
  const bool has_query = route.method != Method::post;
  for (std::string_view rest = request.query.empty() || !has_query ? "" : route.takes; !rest.empty();) {
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
    engine.commits().remembered(
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
  const auto all = routes();
  const auto route = std::ranges::find_if(all, [&](const Route& one) {
    return one.grants != Grants::never && one.method == request.method && match(one.path, request.path);
  });
  return route == all.end() ? Grants::never : route->grants;
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

std::span<const Route> routes() {
  static const std::vector<Route> joined = [] {
    std::vector<Route> all;
    for (const auto* table : tables) all.insert(all.end(), table->begin(), table->end());
    return all;
  }();
  return joined;
}

Response refused_method(std::string_view path, std::string_view method) {
  std::vector<std::string_view> paths, methods;
  for (const Route& route : routes()) {
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
  for (const Route& route : routes()) {
    auto args = match(route.path, request.path);
    if (!args || route.method != request.method) continue;
    if (auto refusal = refuse(route, request)) return *refusal;
    if (auto known = known_words(route, request); !known) return problem(known.error());
    if (route.of_leases && !route.stops && !engine.store_problem().empty()) {
      return problem(unavailable("the store is not usable: " + engine.store_problem(),
                                 "acknowledged changes are kept; 'sublet status' shows when the store is back"));
    }
    const bool keyed = request.method != Method::get && !request.idempotency_key.empty();
    if (keyed && engine.commits().maybe_remembered(request.peer.uid, store::hash_secret(request.idempotency_key))) {
      return replay(route, request, engine, *args, capabilities);
    }
    return call(route, request, engine, std::move(*args), capabilities);
  }
  return refused_method(request.path, to_string(request.method));
}

}  // namespace sublet::http
