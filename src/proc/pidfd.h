// SPDX-License-Identifier: Apache-2.0
// Holds processes by file descriptors. Only a pidfd names a process without the risk of a reused pid. System calls are
// made by number, because glibc's wrappers would require version 2.36.
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

// Opens a pidfd (close-on-exec) of exactly this process. The start time is read after the open, and then the process is
// checked to be alive. NotFound: the process has ended, or another process has its pid. Unavailable: the kernel has no
// pidfd, or no descriptor is free.
Result<Fd> open_pidfd(const ProcRoot& root, ProcessRef process);

// The process that has this pid now, with its pidfd.
struct HeldProcess {
  Fd pidfd;
  ProcessInfo info;
};
Result<HeldProcess> hold_process(const ProcRoot& root, std::int32_t pid);

// Returns the process behind a pidfd that another program opened. NotFound: it has ended. BadRequest: not a pidfd, or
// our pid namespace does not show the process.
Result<ProcessInfo> process_behind(const ProcRoot& root, int pidfd);

// True if all threads have ended, reaped or not. Never blocks. The descriptor becomes readable at that moment.
bool is_dead(int pidfd);

// Sends a signal. NotFound: the process has ended. Denied: we may not signal it.
Status send_signal(int pidfd, int signal);

// Returns the inode of the pidfd, which is unique until the next boot. Unset before Linux 6.9, where all pidfds share
// an inode.
std::optional<std::uint64_t> pidfd_inode(int pidfd);

// The process at the other end of a Unix socket.
struct Peer {
  uid_t uid = 65534;
  gid_t gid = 65534;
  std::int32_t pid = 0;
  // The uid or pid means nothing here: the peer is in a user namespace without a mapping, or in a pid namespace that is
  // not below ours. A peer of the account `nobody` looks the same and is treated alike. Such a peer may use only
  // /healthz.
  bool anonymous = true;
  ProcessRef process;  // none: the process is gone, or the peer is anonymous
  Fd pidfd;            // open if `process` is set
  // True: the kernel gave a pidfd of the peer. False: the process was looked up by pid. Between connect and this call
  // the peer may have ended and its pid been reused; only a start time after the connect would show that.
  bool exact = false;
};
Result<Peer> peer_of(const ProcRoot& root, int socket);

// The kernel's features for naming processes safely. `doctor` prints it.
struct IdentityReport {
  bool pidfd = false;         // open and signal work; without both, Sublet never sends a signal
  bool unique_inode = false;  // Linux 6.9 and later
  bool peer_pidfd = false;    // Linux 6.5 and later
  std::string boot_id;
  std::string kernel;
  std::string text;  // a line for people
  bool may_signal() const { return pidfd && !boot_id.empty(); }
};
IdentityReport identity_report(const ProcRoot& root);

}  // namespace sublet::proc
