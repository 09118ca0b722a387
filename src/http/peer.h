// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.h"
#include "engine/peer.h"
#include "proc/process_table.h"

#include <string_view>

namespace sublet::http {

// Identifies the peer of a connected Unix socket by the kernel's credentials. In a user's own daemon, its uid is admin.
// In the system's daemon, root and the group `sublet-admin` are admins and the group `sublet` are users. A peer of an
// unmapped user namespace (uid 65534, pid 0) has no role. A peer with an unknown role is checked again later. Loop
// thread only.
engine::Peer peer_of(const proc::ProcRoot& root, int socket, std::uint32_t own_uid, bool own_daemon);

// The role of the account behind an access token, whose groups may have changed. The account database may be slow: an
// answer is used for a minute, and for up to a quarter of an hour while the database does not answer. Then the role is
// unknown.
engine::Role role_of(std::uint32_t uid, std::uint32_t own_uid, bool own_daemon);

// The refusal for a user with an unknown role.
Error role_unknown(std::string_view user);

// Looks up the group ids before the first connection.
void ask_for_groups();

}  // namespace sublet::http
