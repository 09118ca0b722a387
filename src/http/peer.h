// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.h"
#include "engine/peer.h"
#include "proc/process_table.h"

#include <string_view>

namespace sublet::http {

// Who is at the other end of a connected Unix socket, by the kernel's word. In a user's own daemon its uid is admin; in
// the system's, root and group `sublet-admin` are, and group `sublet` are users. A peer of an unmapped user namespace
// (uid 65534, pid 0) is nobody. One whose role is unknown is to be looked at again. All of this: loop thread only.
engine::Peer peer_of(const proc::ProcRoot& root, int socket, std::uint32_t own_uid, bool own_daemon);

// The same of an account that is not at the other end: whose access token is shown may have left its groups since. By
// the account database, which may be slow: an answer serves for a minute, and while there is no newer for a quarter of
// an hour. Then the role is unknown.
engine::Role role_of(std::uint32_t uid, std::uint32_t own_uid, bool own_daemon);

// What is said to whose role is unknown.
Error role_unknown(std::string_view user);

// The groups' numbers, before anybody comes who may be one of them.
void ask_for_groups();

}  // namespace sublet::http
