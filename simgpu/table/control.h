// SPDX-License-Identifier: Apache-2.0
// Requests from one process's driver to another's, through the table, for checkpoints from outside. The words are in
// the slot of the served process (layout.h). A process that is killed at any point stops no other process. Another
// caller takes a dead caller's place once the request is answered, and a dead server's slot is freed.
#pragma once

#include <cstdint>

namespace simgpu {

// The states in the numbers of the driver interface (CUprocessState).
enum class ControlState : unsigned { running = 0, locked = 1, checkpointed = 2, failed = 3 };

enum class ControlOperation : unsigned { none, state, thread, lock, checkpoint, restore, unlock };

struct ControlRequest {
  ControlOperation operation = ControlOperation::none;
  std::uint64_t argument = 0;  // lock: milliseconds; 0: no limit
  std::uint64_t devices = 0;   // restore: a bit for each card that the caller names, 0 if it names none
  std::uint64_t number = 0;    // set by the table
};

struct ControlAnswer {
  enum class Kind {
    answered,
    busy,    // another caller's request is in progress
    ended,   // the process ended before it answered
    nobody,  // no process of that id serves requests
  };
  Kind kind = Kind::nobody;
  int result = 0;           // CUresult
  std::uint64_t value = 0;  // the requested value
};

}  // namespace simgpu
