// SPDX-License-Identifier: Apache-2.0
// The interposer in containers: the library, its list for the loader, and the folder of the daemon's socket. The daemon
// names services and the folder only; the worker makes these mounts itself. Any thread.
#pragma once

#include "compose/document.h"
#include "compose/trust.h"
#include "compose/worker.h"

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace sublet::compose {

// Names the services that get the library: those that ask for a GPU, or all if none of them does.
std::vector<std::string> services_with_gpu(const std::vector<Service>& services);

// BadRequest: the service mounts something where the library or its list would be.
Status check_places(const std::string& name, const nlohmann::json& service);

// The process at the other end of a connected socket.
struct Peer {
  pid_t pid = 0;  // 0: not known
  uid_t uid = 0;
  gid_t gid = 0;
};
Peer peer_of(int socket);

// Checks that the folder is that of the daemon's socket: a directory of root or the daemon's user with this socket
// alone, on which the daemon listens. Returns its path without symbolic links. Unavailable: nobody listens at present.
Result<std::string> check_credit_folder(const std::string& folder, const Peer& daemon);

// The files of this machine that a container is given, read-only.
struct Interposed {
  std::vector<std::string> services;
  std::vector<std::pair<std::string, std::string>> mounts;  // source and target
};

// Checks the library and the folder, and writes the list for the loader into `runtime`. `trust`: whose library is used.
Result<Interposed> interpose(const Start& start, const std::string& library, const std::string& runtime,
                             const Trust& trust, const Peer& daemon);

// The path of the library beside this program, in ../lib/sublet. It may not exist.
std::string library_beside();

}  // namespace sublet::compose
