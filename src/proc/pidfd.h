// SPDX-License-Identifier: Apache-2.0
// Processes held by a file descriptor, which is the only name of a process that cannot become another's.
// System calls are made by number: glibc's wrappers would bind the program to version 2.36.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "base/ids.h"
#include "proc/process_table.h"

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace sublet::proc {

// A descriptor (close-on-exec) of exactly the process named: its start time is read after the descriptor is
// open, and the process is found alive after that. NotFound: it has ended, or the pid is another's now.
// Unavailable: the kernel has no pidfd, or no descriptor is free.
Result<Fd> open_pidfd(const ProcRoot& root, ProcessRef process);

// The same for whoever has this pid now, telling who that is.
struct HeldProcess {
  Fd pidfd;
  ProcessInfo info;
};
Result<HeldProcess> hold_process(const ProcRoot& root, std::int32_t pid);

// Who is behind a descriptor that somebody else opened. NotFound: it has ended. BadRequest: it is no pidfd, or of a
// process that our pid namespace does not see.
Result<ProcessInfo> process_behind(const ProcRoot& root, int pidfd);

// True once all threads have ended, reaped or not. Never blocks. The descriptor becomes readable at that
// moment.
bool is_dead(int pidfd);

// NotFound: it has ended. Denied: not ours to signal.
Status send_signal(int pidfd, int signal);

// The inode of the process behind it, unique for the life of the machine since its boot; unset where the
// kernel gives all pidfds the same one (before 6.9).
std::optional<std::uint64_t> pidfd_inode(int pidfd);

// Who connected to a Unix socket.
struct Peer {
  uid_t uid = 65534;
  gid_t gid = 65534;
  std::int32_t pid = 0;
  // Its user or pid means nothing here: it lives in a user namespace without a mapping, or in a pid namespace
  // that is not below ours. (The account `nobody` cannot be told from it and is treated alike.) Such a peer
  // gets /healthz only.
  bool anonymous = true;
  ProcessRef process;  // none: gone, or anonymous
  Fd pidfd;            // held, when `process` is set
  // True: the kernel named the peer by pidfd. False: the pid was looked up again; between connecting and this
  // call the peer may have ended and its pid been taken, which only a start time later than the connection
  // would show.
  bool exact = false;
};
Result<Peer> peer_of(const ProcRoot& root, int socket);

// What this kernel offers for telling processes apart; `doctor` prints it.
struct IdentityReport {
  bool pidfd = false;         // open and signal: without both nothing is ever signalled
  bool unique_inode = false;  // 6.9 and later
  bool peer_pidfd = false;    // 6.5 and later
  std::string boot_id;
  std::string kernel;
  std::string text;  // one line for people
  bool may_signal() const { return pidfd && !boot_id.empty(); }
};
IdentityReport identity_report(const ProcRoot& root);

}  // namespace sublet::proc
