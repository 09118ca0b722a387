// SPDX-License-Identifier: Apache-2.0
// `sublet-gpu checkpoint`: parks and restores one process through the driver. The driver is loaded and started
// once, so that each step costs what the step costs. One thread.
#pragma once

#include "gpu/checkpoint_line.h"
#include "gpu/cuda_api.h"
#include "gpu/serve.h"
#include "gpu/target.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::gpu {

class Parker {
 public:
  // The driver is loaded by the first call that needs it, and by each one after that until it is there. `socket` is
  // looked at while the driver is inside a call (serve.h).
  Parker(ProcessRef target, const std::string& driver, int socket);

  CheckpointReply carry_out(const CheckpointCommand& command);

  // The peer has gone. Of a process that only waits because of us, locked or restored, nobody else would know: it
  // is unlocked. One that is checkpointed stays so: its VRAM is somebody else's now.
  void leave();

 private:
  void guard(std::optional<Watch>& watch, bool changes) const;
  bool refuse(CheckpointReply& reply, CheckpointRefusal refusal, std::string detail) const;
  bool may_proceed(const CheckpointCommand& command, CheckpointReply& reply);
  bool load(CheckpointReply& reply);
  void preflight(const CheckpointCommand& command, CheckpointReply& reply);
  bool survives_trying(const CheckpointCommand& command, CheckpointReply& reply) const;
  void lock(const CheckpointCommand& command, CheckpointReply& reply);
  bool try_restore(const CheckpointCommand& command, CheckpointReply& reply);
  void restore(const CheckpointCommand& command, CheckpointReply& reply);
  bool hold(const CheckpointCommand& command, CheckpointReply& reply);
  template <typename Call>
  CudaCode timed(CheckpointReply& reply, Call call) const;
  template <typename Call>
  CudaCode change(CheckpointReply& reply, Call call) const;
  void step(CheckpointReply& reply, CudaCode (CudaApi::*call)(int) const, ParkState afterwards);
  void state(CheckpointReply& reply);
  bool ended_meanwhile(CheckpointReply& reply) const;
  bool may_trace(CheckpointReply& reply) const;
  bool untraced(CheckpointReply& reply) const;
  bool refused_itself(CheckpointReply& reply, CudaCode code) const;
  void failed(CheckpointReply& reply, CudaCode code);
  ParkState ask_state() const;
  void unlock_at_last();

  Target target_;
  std::string library_;
  int socket_;
  Result<CudaApi> driver_;
  std::vector<CudaApi::Ballast> ballast_;
  bool waits_for_us_ = false;  // locked or restored by this helper, and not unlocked since
};

// Answers each command on the socket with one line, until the peer closes it; then leave(). Exit status as
// serve_lines. A driver call that changes the process, and any call while the process waits because of us, is never
// cut off: the helper goes when the call has returned, or the process has ended.
int serve_checkpoint(int socket, ProcessRef target, const std::string& driver);

}  // namespace sublet::gpu
