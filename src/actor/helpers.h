// SPDX-License-Identifier: Apache-2.0
// Starts `sublet-gpu checkpoint` for one process, with the rights of that process and no others, and hands out the
// other end of its socket. A helper is no part of the actor from then on: it outlives it, speaks with who has that end,
// and ends when that is closed. Belongs to one thread.
#pragma once

#include "actor/protocol.h"
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
  std::size_t most = 256;                // helpers at a time …
  std::size_t most_of_user = 64;         // … and for the processes of one user
  // A helper whose process has ended is of no use; one that is in a driver call then may never come out of it.
  Duration patience = std::chrono::seconds(30);
};

class Helpers {
 public:
  explicit Helpers(HelperOptions options) : options_(std::move(options)) {}
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
  // it has; both are believed. Where this process is not root, it can only be this user's.
  Started start(ProcessRef process, Fd target, const proc::Rights& rights);

  // Forgets those that have ended, and ends those whose process has ended too long ago. To be called from time to time
  // while there are any.
  void sweep();
  bool any() const { return !running_.empty(); }

 private:
  struct Running {
    pid_t pid = 0;  // not yet waited for
    ProcessRef process;
    Fd target;
    std::uint32_t uid = 0;
    std::int64_t useless_since_ns = 0;
  };
  Code may_start(ProcessRef process, std::uint32_t uid) const;
  std::vector<std::string> words_for(ProcessRef process) const;

  const HelperOptions options_;
  std::vector<Running> running_;
};

}  // namespace sublet::actor
