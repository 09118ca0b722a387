// SPDX-License-Identifier: Apache-2.0
// Starts `sublet-gpu checkpoint` for one process, with the rights of that process and no others, and hands out the
// other end of its socket. A helper is no part of the actor from then on: it outlives it, speaks with who has that end,
// and ends when that is closed. Nothing here waits for one that its user could stop. Belongs to one thread.
#pragma once

#include "actor/protocol.h"
#include "actor/records.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/units.h"
#include "proc/process_table.h"

#include <sys/types.h>

#include <string>
#include <vector>

namespace sublet::actor {

struct HelperOptions {
  std::string program;                   // absolute path of sublet-gpu; "": there is none
  std::string driver;                    // absolute path of the CUDA driver's library; "": where the vendor installs it
  std::vector<std::string> environment;  // NAME=VALUE: all that a helper gets of one
  std::string records;                   // where it is written down who is at work, see Records; "": nowhere
  // Helpers at a time, and for the processes of one user: each has the vendor's driver loaded. Whoever is to be brought
  // back gets one beyond that, and what one user has beyond counts for no other.
  std::size_t most = 512;
  std::size_t most_of_user = 128;
  // A helper whose process has ended is of no use; one that is in a driver call then may never come out of it.
  Duration patience = std::chrono::seconds(30);
};

class Helpers {
 public:
  // Takes up those whom an earlier one has left at work, as far as there are records. Refers to `root`.
  Helpers(const proc::ProcRoot& root, HelperOptions options);
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  struct Started {
    Code code = Code::failed;
    int error = 0;      // errno
    std::string why{};  // a sentence; "" when code is ok
    pid_t pid = 0;
    Fd socket{};  // SOCK_STREAM, close-on-exec
  };
  // One at a time for each process: two would not know of each other's steps. `target` is a pidfd of it, `rights` what
  // it has; both are believed. Where this process is not root, it can only be this user's. Started: nothing is left to
  // go wrong but the exec of what was found executable; where that fails, the socket is at its end.
  Started start(ProcessRef process, Fd target, const proc::Rights& rights, bool to_bring_back);

  // Forgets those that have ended, and ends those whose process has ended too long ago. To be called from time to time
  // while there are any.
  void sweep();
  bool any() const { return !running_.empty(); }
  const Records& records() const { return records_; }

 private:
  struct Running {
    pid_t pid = 0;
    Fd pidfd;  // of one that another actor has started; none: it is our child, not yet waited for
    ProcessRef process;
    Fd target;  // none: it has ended
    std::uint32_t uid = 0;
    std::int64_t useless_since_ns = 0;
  };
  void adopt();
  Code may_start(ProcessRef process, std::uint32_t uid, bool to_bring_back) const;
  std::vector<std::string> words_for(ProcessRef process) const;
  static bool ended(const Running& running);
  static void kill(const Running& running);

  const proc::ProcRoot& root_;
  const HelperOptions options_;
  const Records records_;
  std::vector<Running> running_;
};

}  // namespace sublet::actor
