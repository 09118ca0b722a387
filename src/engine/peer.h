// SPDX-License-Identifier: Apache-2.0
// Who is at the other end of a connection, and what they may do.
#pragma once

#include "base/ids.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::engine {

using SessionId = std::uint64_t;  // one connection to the daemon; never reused while the daemon runs

enum class Role {
  nobody,   // healthz only
  unknown,  // no more than that, until the account database answers
  user,     // own leases and the tables, others' command lines hidden
  admin,    // everything
};

// What an access token lets its bearer do, in the name of who made it.
enum class Scope {
  read,    // the tables
  submit,  // and leases of its user
  admin,   // everything
};
std::string_view to_string(Scope scope);
std::optional<Scope> parse_scope(std::string_view text);

struct Peer {
  std::uint32_t uid = 65534;
  std::int32_t pid = 0;
  std::string user;  // the account's name, or the uid as text where there is none
  Role role = Role::nobody;
  bool tcp = false;              // known by a token alone: it has no pid, and can speak for no process
  std::optional<Scope> scope{};  // of that token; unset on the Unix socket, and while no token was shown

  bool may_act_for(std::uint32_t owner_uid) const { return role == Role::admin || uid == owner_uid; }
};

}  // namespace sublet::engine
