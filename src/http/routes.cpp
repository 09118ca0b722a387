// SPDX-License-Identifier: Apache-2.0
#include "http/routes.h"

#include "base/text.h"
#include "http/resources.h"

namespace sublet::http {
namespace {

using engine::Role;

constexpr std::array table{
    Route{Method::get, "/healthz", Role::nobody, get_health, false},
    Route{Method::get, "/v1/status", Role::user, get_status, false},
    Route{Method::get, "/v1/devices", Role::user, get_devices, false},
    Route{Method::get, "/v1/processes", Role::user, get_processes, false},
    Route{Method::get, "/v1/queue", Role::user, get_queue},
    Route{Method::get, "/v1/consumers", Role::user, get_consumers},
    Route{Method::get, "/v1/leases", Role::user, get_leases},
    Route{Method::post, "/v1/leases", Role::user, post_lease, true, replay_lease},
    Route{Method::get, "/v1/leases/{id}", Role::user, get_lease},
    Route{Method::get, "/v1/leases/{id}/why", Role::user, get_why},
    Route{Method::post, "/v1/leases/{id}/claim", Role::user, post_claim},
    Route{Method::post, "/v1/leases/{id}/attach", Role::user, post_attach},
    Route{Method::post, "/v1/leases/{id}/renew", Role::user, post_renew},
    Route{Method::post, "/v1/leases/{id}/release", Role::user, post_release},
    Route{Method::post, "/v1/leases/{id}/pause", Role::user, post_pause},
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
  for (const Route& route : table) paths.push_back(route.path);
  return problem(not_found(fmt::format("there is no {}{}", printable(request.path), did_you_mean(request.path, paths)),
                           "api/openapi.yaml lists what there is"));
}

Response wrong_method(const Request& request, const Route& other) {
  Response response = problem(bad_request(fmt::format("{} takes {}, not {}", printable(request.path),
                                                      other.method == Method::get ? "GET" : "POST",
                                                      request.method == Method::get ? "GET" : "POST")));
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
  mix(request.path);
  mix(request.body.dump());
  return fmt::format("{:016x}", hash);
}

Reply call(const Route& route, const Request& request, engine::Engine& engine, std::vector<std::string> args) {
  Call made{request, engine, std::move(args), {}};
  if (!request.idempotency_key.empty()) {
    made.remember = {.uid = request.peer.uid, .key = request.idempotency_key, .fingerprint = fingerprint(request)};
  }
  return route.handler(made);
}

// A key that was used before: the stored answer, or a refusal if it was another request's.
Reply replay(const Route& route, const Request& request, engine::Engine& engine, const std::vector<std::string>& args) {
  return Later{[&route, request, &engine, args](const std::function<void(Reply)>& done) {
    engine.remembered(
        request.peer.uid, request.idempotency_key,
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
            return done(Response{answer.status, json::parse(answer.body, nullptr, false), {}});
          }
          Call again{request, engine, args, {}};
          done(route.replay(again, answer));
        });
  }};
}

}  // namespace

std::span<const Route> routes() { return table; }

Reply dispatch(const Request& request, engine::Engine& engine) {
  const Route* other_method = nullptr;
  for (const Route& route : table) {
    auto args = match(route.path, request.path);
    if (!args) continue;
    if (route.method != request.method) {
      other_method = &route;
      continue;
    }
    if (request.peer.role < route.least_role) {
      return problem(denied(fmt::format("user {} may only ask for /healthz", request.peer.user),
                            "an admin can add the account to the group 'sublet'"));
    }
    if (route.of_leases && !engine.store_problem().empty()) {
      return problem(unavailable("the store is not usable: " + engine.store_problem(),
                                 "nothing is lost that was acknowledged; 'sublet status' shows when it is back"));
    }
    const bool keyed = request.method == Method::post && !request.idempotency_key.empty();
    if (keyed && engine.maybe_remembered(request.peer.uid, request.idempotency_key)) {
      return replay(route, request, engine, std::move(*args));
    }
    return call(route, request, engine, std::move(*args));
  }
  return other_method != nullptr ? wrong_method(request, *other_method) : unknown_path(request);
}

}  // namespace sublet::http
