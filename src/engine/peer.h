// SPDX-License-Identifier: Apache-2.0
// The process at the other end of a connection, and its rights.
#pragma once

#include "base/ids.h"

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::engine {

using SessionId = std::uint64_t;  // a connection to the daemon; not reused while the daemon runs

enum class Role {
  nobody,   // may use healthz only
  unknown,  // the same, until the account database answers
  user,     // own leases and the tables, without others' command lines
  admin,    // everything
};

// The rights of an access token's bearer, who acts as the user that made the token.
enum class Scope {
  read,    // the tables
  submit,  // the tables, and leases of its user
  admin,   // everything
};
std::string_view to_string(Scope scope);
std::optional<Scope> parse_scope(std::string_view text);

struct Peer {
  std::uint32_t uid = 65534;
  std::int32_t pid = 0;
  std::string user;  // the account's name, or the uid as text if there is no account
  Role role = Role::nobody;
  bool tcp = false;              // the peer is known only by a token: it has no pid and cannot speak for a process
  std::optional<Scope> scope{};  // scope of the token; unset on the Unix socket, and while no token was shown
  // Group ids of the process when it connected; null: only the account database knows the groups of this user.
  std::shared_ptr<const std::vector<gid_t>> groups{};

  bool may_act_for(std::uint32_t owner_uid) const { return role == Role::admin || uid == owner_uid; }
};

}  // namespace sublet::engine
