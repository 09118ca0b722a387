// SPDX-License-Identifier: Apache-2.0
// Looks at a process that is to be parked, through the kernel. Changes nothing, and does not call the driver. One
// thread.
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
  bool there = false;      // /proc shows the process
  bool may_trace = false;  // its memory may be read: same user and dumpable, or CAP_SYS_PTRACE; or it has no memory
  bool same_user = false;
  bool ending = false;      // it has no memory any more and is about to end
  std::int32_t tracer = 0;  // pid of its debugger; 0: none
  bool stopped = false;     // stopped by a signal or a debugger, or frozen: it answers no driver call
  Bytes resident;           // host memory of the process, in bytes
};

// Whether a process uses NCCL, judged from its mappings (the text of /proc/PID/maps).
struct NcclLook {
  bool shares = false;  // it shares memory with other ranks: a communicator of several
  bool links = false;   // it has the library for another reason than PyTorch, which always links it
};
NcclLook look_for_nccl(std::string_view maps);

// Whether the process's cgroup, or a group above it, is frozen: by the freezer of version 1, or in version 2.
bool is_frozen(const proc::ProcRoot& root, std::int32_t pid);

class Target {
 public:
  // Opens a pidfd. The target is gone from the start if no process has the pid, or if the start time differs. Start
  // time 0: not given.
  explicit Target(ProcessRef process);

  std::int32_t pid() const { return process_.pid; }
  int pidfd() const { return pidfd_.get(); }  // -1 if the process is gone, or if the kernel has no pidfd
  bool gone() const;
  TargetLook look() const;
  // The MIG slice that the process was started to see; "": none, or it cannot be read.
  std::string slice() const;
  NcclLook nccl() const;  // false values if the mappings cannot be read

 private:
  ProcessRef process_;
  Fd pidfd_;
};

}  // namespace sublet::gpu
