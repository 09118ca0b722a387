// SPDX-License-Identifier: Apache-2.0
// Requests from one process's driver to another's, through the table: what a checkpoint from outside needs.
// The words are in the served process's slot (layout.h); whoever is killed at any point leaves nothing that
// stops the others: a dead caller's place is taken over once its request is answered, and a dead server's
// slot is gone.
#pragma once

#include <cstdint>

namespace simgpu {

// As the driver interface numbers them (CUprocessState).
enum class ControlState : unsigned { running = 0, locked = 1, checkpointed = 2, failed = 3 };

enum class ControlOperation : unsigned { none, state, thread, lock, checkpoint, restore, unlock };

struct ControlRequest {
  ControlOperation operation = ControlOperation::none;
  std::uint64_t argument = 0;  // lock: milliseconds, 0 is without end
  std::uint64_t devices = 0;   // restore: a bit for each card that the caller names, 0 where it names none
  std::uint64_t number = 0;    // given by the table
};

struct ControlAnswer {
  enum class Kind {
    answered,
    busy,    // somebody else's request is under way
    ended,   // the process ended before it answered
    nobody,  // no process of that id serves requests
  };
  Kind kind = Kind::nobody;
  int result = 0;           // CUresult
  std::uint64_t value = 0;  // what was asked for
};

}  // namespace simgpu
