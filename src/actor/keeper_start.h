// SPDX-License-Identifier: Apache-2.0
// Starts keepers (sublet-keep) of supervised programs as their users, by a fork or by a service of its own
// (keeper_service.h). A keeper is nobody's child and independent of the actor. Nothing here waits for a keeper or for
// the account database. Belongs to one thread.
#pragma once

#include "actor/protocol.h"
#include "base/fd.h"

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace sublet::actor {

struct KeeperOptions {
  std::string program;    // absolute path of sublet-keep; "": no keeper can be started
  std::string logs;       // directory with one directory of logs for each uid; "": no keeper can be started
  gid_t group = 0;        // of the daemon, which reads the logs
  bool for_root = false;  // the daemon is root, so it may start keepers as root
  std::string service{};  // path of the socket of the keeper service; "": keepers are forks of this process
};

struct StartedKeeper {
  Code code = Code::ok;
  int error = 0;      // errno
  std::string why{};  // a sentence; "" if code is ok
  Fd report{};        // reading end of the keeper's report (proc/detached.h)
};

// `document`: a sealed memfd. `others`: this process may become other users. After success the start can still fail;
// then the report says why, or it is at its end.
StartedKeeper start_keeper(const KeeperOptions& options, std::uint32_t uid, const Fd& document, bool others);

struct Refusal {
  Code code = Code::ok;  // ok: no refusal
  std::string why{};     // a sentence; "" if code is ok
};
// Whether a keeper of this user may be started with this document.
Refusal check_keeper_order(const KeeperOptions& options, std::uint32_t uid, const Fd& document, bool others);

// Makes LOGS/UID with mode 02770 for this user and group, and makes LOGS if it is missing. Follows no link. Returns why
// that failed, or "". A directory that the user has already stays as it is.
std::string make_log_directory(const std::string& logs, std::uint32_t uid, gid_t group);

}  // namespace sublet::actor
