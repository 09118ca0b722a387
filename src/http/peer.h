// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/peer.h"
#include "proc/process_table.h"

namespace sublet::http {

// Who is at the other end of a connected Unix socket, by the kernel's word. In a user's own daemon its uid is admin; in
// the system's, root and group `sublet-admin` are, and group `sublet` are users. A peer of an unmapped user namespace
// (uid 65534, pid 0) is nobody.
engine::Peer peer_of(const proc::ProcRoot& root, int socket, std::uint32_t own_uid, bool own_daemon);

// The same of an account that is not at the other end: whose access token is shown may have left its groups since. By
// the account database, which may be slow: an answer serves for a minute. Loop thread only.
engine::Role role_of(std::uint32_t uid, std::uint32_t own_uid, bool own_daemon);

}  // namespace sublet::http
