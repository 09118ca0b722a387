// SPDX-License-Identifier: Apache-2.0
// The access token of a request over TCP, and whether it still admits the caller. A stream or a wait may stay open for
// hours after the first check.
#pragma once

#include "engine/engine.h"
#include "http/message.h"

#include <chrono>
#include <functional>
#include <optional>

namespace sublet::http {

class Admission {
 public:
  using RoleOf = std::function<engine::Role(std::uint32_t)>;
  Admission(engine::Engine& engine, const RoleOf& role_of) : engine_(engine), role_of_(role_of) {}

  // Sets the access token; null: none. A caller over the Unix socket is identified by the kernel.
  void by(const store::AccessToken* token) { token_ = token == nullptr ? std::nullopt : std::optional(*token); }
  // The role of a token, if its creator has that role too.
  static engine::Role role_of(const store::AccessToken& token) {
    return token.scope == to_string(engine::Scope::admin) ? engine::Role::admin : engine::Role::user;
  }
  // The refusal if the caller is no longer admitted.
  std::optional<Response> refusal() const;
  // The time of the next check of refusal(); changes before it cause no wake-up.
  std::chrono::steady_clock::time_point look_again() const;

 private:
  engine::Engine& engine_;
  const RoleOf& role_of_;
  std::optional<store::AccessToken> token_;
};

}  // namespace sublet::http
