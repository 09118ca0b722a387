// SPDX-License-Identifier: Apache-2.0
#include "http/routes.h"

#include "base/text.h"
#include "http/resources.h"
#include "http/secrets.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

using engine::Role;
using engine::Scope;

constexpr std::array table{
    Route{Method::get, "/healthz", Role::nobody, get_health, false},
    Route{Method::get, "/metrics", Role::user, get_metrics, false},
    Route{Method::get, "/v1/openapi.json", Role::user, get_contract, false},
    Route{Method::get, "/v1/status", Role::user, get_status, false},
    Route{Method::get, "/v1/devices", Role::user, get_devices, false},
    Route{Method::get, "/v1/processes", Role::user, get_processes, false},
    Route{Method::get, "/v1/queue", Role::user, get_queue},
    Route{Method::get, "/v1/consumers", Role::user, get_consumers},
    Route{Method::post, "/v1/consumers/{name}/grant", Role::user, post_grant, true, nullptr, Scope::submit},
    Route{Method::del, "/v1/consumers/{name}/grant", Role::user, delete_grant, true, nullptr, Scope::submit},
    Route{Method::get, "/v1/events", Role::user, get_events},
    Route{Method::get, "/v1/report", Role::user, get_report},
    Route{Method::get, "/v1/tokens", Role::user, get_tokens, true, nullptr, Scope::admin},
    Route{Method::post, "/v1/tokens", Role::user, post_token, true, nullptr, Scope::admin},
    Route{Method::del, "/v1/tokens/{id}", Role::user, delete_token, true, nullptr, Scope::admin},
    Route{Method::get, "/v1/leases", Role::user, get_leases},
    Route{Method::post, "/v1/leases", Role::user, post_lease, true, replay_lease, Scope::submit},
    Route{Method::get, "/v1/leases/{id}", Role::user, get_lease},
    Route{Method::get, "/v1/leases/{id}/why", Role::user, get_why},
    Route{Method::post, "/v1/leases/{id}/claim", Role::user, post_claim, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/attach", Role::user, post_attach, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/renew", Role::user, post_renew, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/resize", Role::user, post_resize, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/release", Role::user, post_release, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/pause", Role::user, post_pause, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/resume", Role::user, post_resume, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/preempt", Role::user, post_preempt, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/free", Role::user, post_free, true, replay_lease, Scope::submit},
    Route{Method::get, "/v1/leases/{id}/cooperate", Role::user, get_cooperate, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/cooperate", Role::user, post_cooperate, true, nullptr, Scope::submit},
    Route{Method::del, "/v1/leases/{id}/cooperate", Role::user, delete_cooperate, true, nullptr, Scope::submit},
    Route{Method::post, "/v1/leases/{id}/cooperate/answer", Role::user, post_cooperate_answer, true, nullptr,
          Scope::submit},
    Route{Method::get, "/v1/ledger", Role::user, get_ledger},
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

Response unknown_path(const Request& request) {
  std::vector<std::string_view> paths;
  paths.reserve(std::size(table));
  for (const Route& route : table) paths.push_back(route.path);
  return problem(not_found(fmt::format("there is no {}{}", printable(request.path), did_you_mean(request.path, paths)),
                           "api/openapi.yaml lists what there is"));
}

Response wrong_method(const Request& request, const Route& other) {
  Response response = problem(bad_request(
      fmt::format("{} takes {}, not {}", printable(request.path), to_string(other.method), to_string(request.method))));
  response.status = 405;
  response.body["status"] = 405;
  return response;
}

// 64 bits of FNV-1a: tells a retry from another request under the same key; not a defence against anybody.
std::string fingerprint(const Request& request) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  };
  mix(to_string(request.method));
  mix(request.path);
  mix(request.body.dump());
  return fmt::format("{:016x}", hash);
}

Reply call(const Route& route, const Request& request, engine::Engine& engine, std::vector<std::string> args) {
  Call made{request, engine, std::move(args), {}};
  if (!request.idempotency_key.empty()) {
    made.remember = {.uid = request.peer.uid,
                     .key = store::hash_secret(request.idempotency_key),
                     .fingerprint = fingerprint(request)};
  }
  return route.handler(made);
}

// A key that was used before: the stored answer, or a refusal if it was another request's.
Reply replay(const Route& route, const Request& request, engine::Engine& engine, const std::vector<std::string>& args) {
  return Later{[&route, request, &engine, args](const std::function<void(Reply)>& done) {
    engine.remembered(
        request.peer.uid, store::hash_secret(request.idempotency_key),
        [&route, request, &engine, args, done](const Result<std::optional<store::Remembered>>& found) {
          if (!found) return done(problem(found.error()));
          // The fast check was a false alarm: nothing was stored under this key.
          if (!*found) return done(call(route, request, engine, args));
          const store::Remembered& answer = **found;
          if (answer.fingerprint != fingerprint(request)) {
            return done(problem(
                {Code::Stale, fmt::format("Idempotency-Key '{}' was used for another request", request.idempotency_key),
                 "use a new key for each request, the same only for a retry of it"}));
          }
          if (route.replay == nullptr) {
            json body = json::parse(answer.body, nullptr, false);
            unseal(body, request);
            return done(Response{answer.status, std::move(body), {}});
          }
          Call again{request, engine, args, {}};
          done(route.replay(again, answer));
        });
  }};
}

// Who may not make this call is told why not, and what would be needed.
std::optional<Response> refuse(const Route& route, const Request& request) {
  const engine::Peer& peer = request.peer;
  if (peer.role < route.least_role) {
    if (!peer.tcp && peer.uid == engine::Peer{}.uid) {
      return problem(denied(fmt::format("the kernel does not say who asks: uid {} stands for whomever it knows no "
                                        "number for, and may only ask for /healthz",
                                        peer.uid),
                            "use an account of its own, and one user namespace for it and the daemon"));
    }
    if (!peer.tcp) {
      return problem(denied(fmt::format("user {} may only ask for /healthz", peer.user),
                            "an admin can add the account to the group 'sublet'"));
    }
    Response response =
        problem(denied("over TCP this needs an access token that is known and has not expired",
                       "one is made by: sublet token create; SUBLET_TOKEN_FILE names its file (HTTP: Authorization: "
                       "Bearer TOKEN)"));
    response.status = response.body["status"] = 401;
    return response;
  }
  if (!peer.scope) return std::nullopt;
  // Who shows a lease's token holds the lease by that, which is more than reading.
  const Scope needed = std::max(route.scope, request.lease_token.empty() ? Scope::read : Scope::submit);
  if (*peer.scope >= needed) return std::nullopt;
  return problem(denied(
      fmt::format("the access token has the scope {}, and this needs {}", to_string(*peer.scope), to_string(needed)),
      fmt::format("sublet token create --scope {}", to_string(needed))));
}

}  // namespace

std::span<const Route> routes() { return table; }

std::string allowed_methods(std::string_view path) {
  std::string methods;
  for (const Route& route : table) {
    if (match(route.path, path)) methods += fmt::format("{}{}", methods.empty() ? "" : ", ", to_string(route.method));
  }
  return methods;
}

Reply dispatch(const Request& request, engine::Engine& engine) {
  const Route* other_method = nullptr;
  for (const Route& route : table) {
    auto args = match(route.path, request.path);
    if (!args) continue;
    if (route.method != request.method) {
      other_method = &route;
      continue;
    }
    if (auto refusal = refuse(route, request)) return *refusal;
    if (route.of_leases && !engine.store_problem().empty()) {
      return problem(unavailable("the store is not usable: " + engine.store_problem(),
                                 "nothing is lost that was acknowledged; 'sublet status' shows when it is back"));
    }
    const bool keyed = request.method != Method::get && !request.idempotency_key.empty();
    if (keyed && engine.maybe_remembered(request.peer.uid, store::hash_secret(request.idempotency_key))) {
      return replay(route, request, engine, *args);
    }
    return call(route, request, engine, std::move(*args));
  }
  return other_method != nullptr ? wrong_method(request, *other_method) : unknown_path(request);
}

}  // namespace sublet::http
