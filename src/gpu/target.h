// SPDX-License-Identifier: Apache-2.0
// What the kernel says of the process that is to be parked. Nothing here touches it or the driver. One thread.
#pragma once

#include "base/fd.h"
#include "base/ids.h"
#include "base/units.h"

#include <cstdint>
#include <string>

namespace sublet::gpu {

struct TargetLook {
  bool there = false;      // /proc shows it
  bool may_trace = false;  // its memory may be read: same user and dumpable, or CAP_SYS_PTRACE
  bool same_user = false;
  std::int32_t tracer = 0;  // pid of the debugger that holds it; 0: none
  bool stopped = false;     // by a signal or a debugger, or frozen with its cgroup: it would answer no driver call
  Bytes resident;           // of its memory on the host
};

class Target {
 public:
  // Held by a pidfd from here on. Where the start time (0: not given) is another's, or no process has the pid, it is
  // gone from the beginning.
  explicit Target(ProcessRef process);

  std::int32_t pid() const { return process_.pid; }
  int pidfd() const { return pidfd_.get(); }  // -1 when it is gone, or the kernel knows no pidfd
  bool gone() const;
  TargetLook look() const;

 private:
  ProcessRef process_;
  Fd pidfd_;
};

}  // namespace sublet::gpu
