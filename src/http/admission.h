// SPDX-License-Identifier: Apache-2.0
// By what a request over TCP was let in, and whether that would still let it in: a stream or a wait may be open for
// hours after that was asked.
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
  Admission(const engine::Engine& engine, const RoleOf& role_of) : engine_(engine), role_of_(role_of) {}

  // By this access token, or by none where it is null: who came over the Unix socket is known by the kernel's word, and
  // a stranger has nothing to lose.
  void by(const store::AccessToken* token) { token_ = token == nullptr ? std::nullopt : std::optional(*token); }
  // What this token is worth to who shows it, if its maker is worth as much.
  static engine::Role role_of(const store::AccessToken& token) {
    return token.scope == to_string(engine::Scope::admin) ? engine::Role::admin : engine::Role::user;
  }
  // What is said to who would no longer be let in.
  std::optional<Response> refusal() const;
  // When refusal() may have something to say that nobody is woken for; whoever waits looks then.
  std::chrono::steady_clock::time_point look_again() const;

 private:
  const engine::Engine& engine_;
  const RoleOf& role_of_;
  std::optional<store::AccessToken> token_;
};

}  // namespace sublet::http
