// SPDX-License-Identifier: Apache-2.0
// What the kernel says of the process that is to be parked. Nothing here touches it or the driver. One thread.
#pragma once

#include "base/fd.h"
#include "base/ids.h"
#include "base/units.h"
#include "proc/process_table.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace sublet::gpu {

struct TargetLook {
  bool there = false;      // /proc shows it
  bool may_trace = false;  // its memory may be read: same user and dumpable, or CAP_SYS_PTRACE; or it has none
  bool same_user = false;
  bool ending = false;      // it has no memory any more, and will be gone
  std::int32_t tracer = 0;  // pid of the debugger that holds it; 0: none
  bool stopped = false;     // by a signal or a debugger, or frozen with its cgroup: it would answer no driver call
  Bytes resident;           // of its memory on the host
};

// Whether a process speaks NCCL, as far as its mappings (the text of /proc/PID/maps) tell.
struct NcclLook {
  bool shares = false;  // it shares memory with other ranks: a communicator of several
  bool links = false;   // it has the library, and not just because PyTorch, which links it always, has it
};
NcclLook look_for_nccl(std::string_view maps);

// The process is in a control group that is frozen, or one above it is: by the freezer of version 1, or in version 2.
bool is_frozen(const proc::ProcRoot& root, std::int32_t pid);

class Target {
 public:
  // Held by a pidfd from here on. Where the start time (0: not given) is another's, or no process has the pid, it is
  // gone from the beginning.
  explicit Target(ProcessRef process);

  std::int32_t pid() const { return process_.pid; }
  int pidfd() const { return pidfd_.get(); }  // -1 when it is gone, or the kernel knows no pidfd
  bool gone() const;
  TargetLook look() const;
  NcclLook nccl() const;  // nothing of it where the mappings cannot be read

 private:
  ProcessRef process_;
  Fd pidfd_;
};

}  // namespace sublet::gpu
