// SPDX-License-Identifier: Apache-2.0
// Who is at the other end of a connection, and what they may do.
#pragma once

#include "base/ids.h"

#include <cstdint>
#include <string>

namespace sublet::engine {

using SessionId = std::uint64_t;  // one connection to the daemon; never reused while the daemon runs

enum class Role {
  nobody,  // healthz only
  user,    // own leases and the tables, others' command lines hidden
  admin,   // everything
};

struct Peer {
  std::uint32_t uid = 65534;
  std::int32_t pid = 0;
  std::string user;  // the account's name, or the uid as text where there is none
  Role role = Role::nobody;

  bool may_act_for(std::uint32_t owner_uid) const { return role == Role::admin || uid == owner_uid; }
};

}  // namespace sublet::engine
