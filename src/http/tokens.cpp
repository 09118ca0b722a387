// SPDX-License-Identifier: Apache-2.0
// Access tokens for callers over TCP: created, listed, revoked. The secret is shown once and not stored.
#include "base/number.h"
#include "base/text.h"
#include "http/body.h"
#include "http/routes.h"
#include "http/secrets.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

constexpr std::array<std::string_view, 3> scopes{"read", "submit", "admin"};
constexpr int tokens_per_user = 100;

std::string name_of(std::uint64_t number) { return fmt::format("token-{}", number); }

json render_token(const store::AccessToken& token) {
  return {{"id", name_of(token.number)},
          {"name", token.name},
          {"scope", token.scope},
          {"user", token.user},
          {"uid", token.uid},
          {"created_at", format_rfc3339(token.created_at)},
          {"expires_at", token.expires_at ? json(format_rfc3339(*token.expires_at)) : json(nullptr)}};
}

Result<store::AccessToken> read_wanted(Call& call) {
  const engine::Peer& peer = call.request.peer;
  Body body(call.request.body);
  store::AccessToken token{.uid = peer.uid, .user = peer.user};
  token.name = body.text("name", 64).value_or("");
  token.scope = body.text("scope").value_or("");
  if (const auto ttl = body.integer("ttl_seconds", 1, 100LL * 366 * 86400)) {
    token.expires_at = call.engine.now() + std::chrono::seconds(*ttl);
  }
  if (auto finished = body.finish(); !finished) return finished.error();
  if (token.scope.empty()) {
    return bad_request("scope is missing",
                       "give one of read (see the tables), submit (and manage your leases), admin (everything)");
  }
  const auto scope = engine::parse_scope(token.scope);
  if (!scope) {
    return bad_request(
        fmt::format("scope '{}' is unknown{}", printable(token.scope), did_you_mean(token.scope, scopes)),
        fmt::format("one of {}", fmt::join(scopes, ", ")));
  }
  if (*scope == engine::Scope::admin && peer.role != engine::Role::admin) {
    return denied(fmt::format("user {} is not an admin and cannot create an admin token", peer.user),
                  "your highest scope is submit");
  }
  int own = 0;
  for (const auto& [number, other] : call.engine.access().tokens())
    own += other.uid == peer.uid && !other.expired(call.engine.now()) ? 1 : 0;
  if (own >= tokens_per_user) {
    return Error{Code::Quota,
                 fmt::format("user {} has {} tokens, which is the limit", peer.user, own),
                 "revoke a token: sublet token ls lists them",
                 {{"limit", tokens_per_user}}};
  }
  return token;
}

// Finds a token of the caller, or any token for an admin; other tokens do not exist for the caller.
const store::AccessToken* find_token(const Call& call, std::string_view name) {
  std::string_view digits = name;
  if (digits.starts_with("token-")) digits.remove_prefix(6);
  const auto number = parse_number<std::uint64_t>(digits);
  if (!number) return nullptr;
  const auto found = call.engine.access().tokens().find(*number);
  if (found == call.engine.access().tokens().end() || !call.request.peer.may_act_for(found->second.uid)) return nullptr;
  return &found->second;
}

Reply get_tokens(Call& call) {
  json rows = json::array();
  for (const auto& [number, token] : call.engine.access().tokens()) {
    if (!token.expired(call.engine.now()) && call.request.peer.may_act_for(token.uid))
      rows.push_back(render_token(token));
  }
  return Response{200, {{"tokens", std::move(rows)}}, {}};
}

Reply post_token(Call& call) {
  auto wanted = read_wanted(call);
  if (!wanted) return problem(wanted.error());
  const Secret secret = new_secret(call.request);
  wanted->hash = store::hash_secret(secret.text);
  std::string shown;
  auto answered =
      call.engine.access().add_token(std::move(*wanted), call.remember, [&](const store::AccessToken& token) {
        const std::string prefix = fmt::format("sublet_{}_", token.number);
        shown = with_field(render_token(token).dump(), "token", prefix + secret.text);
        return engine::Answered{201, sealed(render_token(token).dump(), secret, prefix)};
      });
  if (!answered) return problem(answered.error());
  return as_json(201, std::move(shown));
}

Reply delete_token(Call& call) {
  const store::AccessToken* token = find_token(call, call.args[0]);
  if (token == nullptr) {
    return problem(not_found(fmt::format("token '{}' does not exist", printable(call.args[0])),
                             "sublet token ls lists the tokens"));
  }
  const std::uint64_t number = token->number;
  auto answered = call.engine.access().revoke_token(number, call.remember, {200, render_token(*token).dump()});
  return as_json(std::move(answered));
}

constexpr Route table[] = {
    Route{Method::get, "/v1/tokens", Role::user, Scope::admin, get_tokens},
    Route{Method::post, "/v1/tokens", Role::user, Scope::admin, post_token, "scope,name,ttl_seconds", "CreatedToken"},
    Route{Method::del, "/v1/tokens/{id}", Role::user, Scope::admin, delete_token, "", "Token"},
};

}  // namespace

const std::span<const Route> token_routes = table;

}  // namespace sublet::http
