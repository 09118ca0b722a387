// SPDX-License-Identifier: Apache-2.0
#include "http/admission.h"

#include "http/peer.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

// An answer of the account database may be a minute old, or fifteen minutes while it does not answer.
constexpr Duration look_interval = std::chrono::seconds(10);

Response outlived(const store::AccessToken& token) {
  const bool admin = Admission::role_of(token) == engine::Role::admin;
  return problem(
      denied(fmt::format("token-{} acts for user {}, who {}", token.number, token.user,
                         admin ? "is no longer an admin" : "may no longer use this daemon"),
             fmt::format(
                 "ask an admin to add the account to the group '{}', or revoke the token: sublet token revoke token-{}",
                 admin ? "sublet-admin" : "sublet", token.number)));
}

}  // namespace

std::optional<Response> Admission::refusal() const {
  if (!token_) return std::nullopt;
  const auto found = engine_.access().tokens().find(token_->number);
  // Another store may have given its number to another.
  const bool same = found != engine_.access().tokens().end() && found->second.hash == token_->hash;
  if (!same || token_->expired(engine_.now())) {
    return problem(401, denied(fmt::format("token-{} was revoked or has expired", token_->number),
                               "create a new token: sublet token create"));
  }
  // A token has no more rights than its owner.
  const engine::Role role = role_of_(token_->uid);
  if (role == engine::Role::unknown) return problem(role_unknown(token_->user));
  if (role < role_of(*token_)) return outlived(*token_);
  return std::nullopt;
}

std::chrono::steady_clock::time_point Admission::look_again() const {
  using Clock = std::chrono::steady_clock;
  if (!token_) return Clock::time_point::max();
  Duration left = look_interval;
  if (token_->expires_at) left = std::min<Duration>(left, *token_->expires_at - engine_.now());
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(left);
}

}  // namespace sublet::http
