// SPDX-License-Identifier: Apache-2.0
// The driver that parks processes, and its helpers, each a process of its own. Both outlive the daemon: a call is
// carried out even if its caller has gone. Calls for one process are carried out one after the other.
#pragma once

#include "world.h"

#include "gpu/checkpoint_line.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

namespace sublet::sim {

// One `sublet-gpu checkpoint`.
struct Helper {
  ProcessRef target;
  bool waits_for_us = false;  // this helper alone has locked the process
  bool at_work = false;       // inside the driver
  bool left_alone = false;    // its caller has gone: it ends once it is not at work
  bool dead = false;          // it was killed; its process stays locked
};

class Driver {
 public:
  // Called with the reply; without one if the helper has ended, even after a reply.
  using Answered = std::function<void(std::optional<gpu::CheckpointReply>)>;

  Driver(World& world, Agenda& agenda, const Config& config);
  // Answers at once, later or never.
  void ask(const std::shared_ptr<Helper>& helper, gpu::CheckpointCommand command, Answered answered);
  void leave_alone(Helper& helper);
  Bytes resident(ProcessRef process) const;

 private:
  bool uses_cuda(const Process& process) const;
  struct Call {
    Duration takes;
    bool hangs;
    std::function<void()> carry_out;
  };
  void enter(ProcessRef process, Call call);
  void begin(ProcessRef process);
  void end(ProcessRef process);
  Call call_for(const Helper& helper, gpu::CheckpointCall call);
  void leave(Helper& helper);

  gpu::CheckpointReply carry_out(Helper& helper, const gpu::CheckpointCommand& command);
  bool cannot_be_parked(const Process& process, gpu::CheckpointReply& reply);
  void preflight(const Process& process, const gpu::CheckpointCommand& command, gpu::CheckpointReply& reply);
  void state(const Process& process, gpu::CheckpointReply& reply);
  void lock(Helper& helper, const Process& process, gpu::CheckpointReply& reply);
  void checkpoint(Helper& helper, const Process& process, gpu::CheckpointReply& reply);
  void yield(const Process& process);
  bool hold(const gpu::CheckpointCommand& command, gpu::CheckpointReply& reply) const;
  void restore(Helper& helper, const Process& process, const gpu::CheckpointCommand& command,
               gpu::CheckpointReply& reply);
  void unlock(Helper& helper, const Process& process, gpu::CheckpointReply& reply);

  World& world_;
  Agenda& agenda_;
  const Config& config_;
  Random random_;
  std::map<ProcessRef, std::deque<Call>> calls_;  // the first of each is in progress
};

}  // namespace sublet::sim
