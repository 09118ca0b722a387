// SPDX-License-Identifier: Apache-2.0
// `sublet-gpu checkpoint`: parks and restores one process through the driver. The driver is loaded and started once, so
// that later calls are fast. One thread.
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
  // Does not load the driver. Each call that needs the driver loads it, until loading succeeds. `socket` is watched
  // during driver calls (serve.h).
  Parker(ProcessRef target, const std::string& driver, int socket);

  CheckpointReply carry_out(const CheckpointCommand& command);

  // Called when the peer has gone. A process that this helper locked or restored is unlocked, because no other program
  // knows that it waits. A checkpointed process stays so, because other programs may have its VRAM.
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
  bool waits_for_us_ = false;  // this helper locked or restored the process, and has not unlocked it since
};

// Answers each command on the socket with a line, until the peer closes the socket, and then calls leave(). Returns the
// exit status of serve_lines. Driver calls that change the process, and all calls while the process waits for this
// helper, are never interrupted. The helper ends when the call has returned or the process has ended.
int serve_checkpoint(int socket, ProcessRef target, const std::string& driver);

}  // namespace sublet::gpu
