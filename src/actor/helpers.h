// SPDX-License-Identifier: Apache-2.0
// Starts `sublet-gpu checkpoint` for a process, with exactly the rights of that process, and hands out the other end of
// its socket. From then on the helper is independent of the actor: it outlives the actor, and ends when its socket is
// closed. Nothing here waits for a helper that its user could stop. Belongs to one thread.
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
  std::string program;                   // absolute path of sublet-gpu; "": no helper can be started
  std::string driver;                    // absolute path of the CUDA driver's library; "": the vendor's places
  std::vector<std::string> environment;  // NAME=VALUE: the whole environment of a helper
  std::string records;                   // directory of Records; "": helpers are not recorded
  // Greatest number of helpers in all and for each user, because each loads the driver. A process that must be resumed
  // may have a helper above these limits. Helpers of a user above its limit do not count for other users.
  std::size_t most = 512;
  std::size_t most_of_user = 128;
  // Time after which a helper is killed once its process has ended. A helper inside a driver call may never return from
  // it.
  Duration patience = std::chrono::seconds(30);
};

class Helpers {
 public:
  // Adopts the helpers of an earlier actor, as far as there are records. Keeps a reference to `root`.
  Helpers(const proc::ProcRoot& root, HelperOptions options);
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  struct Started {
    Code code = Code::failed;
    int error = 0;      // errno
    std::string why{};  // a sentence; "" if code is ok
    pid_t pid = 0;
    Fd socket{};  // SOCK_STREAM, close-on-exec
  };
  // Starts a helper. Each process has at most one helper, because two helpers would not know each other's steps.
  // `target` is a pidfd of the process and `rights` are its rights; both are trusted. An actor that is not root can
  // only help processes of its own user. After success only the exec can still fail; then the socket is at its end.
  Started start(ProcessRef process, Fd target, const proc::Rights& rights, bool to_bring_back);

  // Forgets helpers that have ended, and kills helpers whose process ended too long ago. Call it regularly while any()
  // is true.
  void sweep();
  bool any() const { return !running_.empty(); }
  const Records& records() const { return records_; }

 private:
  struct Running {
    pid_t pid = 0;
    Fd pidfd;  // set for a helper of another actor; none: our child, not yet reaped
    ProcessRef process;
    Fd target;  // none: the process has ended
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
