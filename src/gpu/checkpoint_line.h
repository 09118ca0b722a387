// SPDX-License-Identifier: Apache-2.0
// The conversation with `sublet-gpu checkpoint`: one line of JSON each way, answered in order. Both sides are here:
// text in, values out, no socket. Pure functions, any thread; neither side trusts the other's bytes.
#pragma once

#include "base/error.h"
#include "base/units.h"
#include "gpu/cuda_api.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::gpu {

enum class CheckpointCall {
  preflight,   // whether the process could be parked; touches nothing
  state,       // what the driver says of it
  lock,        // its driver calls wait, its work is finished; ends unlocked when that takes longer than the timeout
  checkpoint,  // VRAM to its own host memory
  hold,        // takes ballast in place of what is held so far; none: gives it back
  restore,     // takes ballast first if any is named, gives all ballast back, and at once restores
  unlock,
};

// Why a call was refused or failed. `driver`: the driver's own answer, see code and name.
enum class CheckpointRefusal {
  none,
  gone,                // the process has ended, or its pid is another's by now
  no_right,            // another user's, and no right to trace
  not_dumpable,        // this user's, but it does not let itself be traced
  traced,              // a debugger holds it
  stopped,             // it would answer no driver call before it goes on
  unsupported_driver,  // it cannot do checkpoints
  no_driver,           // no library, or one that does not start: the next time it may
  no_cuda,             // it uses no CUDA
  wrong_state,         // preflight: it is not running but locked, checkpointed or failed
  timeout,             // lock: its work was not done in time; it runs on
  not_parkable,        // it uses what the driver cannot park, as is seen from outside, or as the driver said
  unvouched,           // preflight: nobody can tell whether it does, and with this driver to try would be its end
  no_room,             // the ballast does not fit: nothing was tried
  driver,
};

std::string_view to_string(CheckpointCall call);
std::string_view to_string(CheckpointRefusal refusal);
std::string_view to_string(ParkState state);

// What is asked for beside a process's own bytes where there is so much, so that a restore which is tried does not fail
// for lack of memory: a failed one is final.
inline constexpr Bytes ballast_margin = 512 * MiB;

struct BallastWish {
  std::string uuid;  // of the card
  Bytes bytes;       // without so much there is no room
  Bytes margin{};    // beside them, if that is there too; else the context that holding takes counts as part of them
  bool operator==(const BallastWish&) const = default;
};

struct CheckpointCommand {
  std::uint64_t id = 0;
  CheckpointCall call{};
  std::chrono::milliseconds timeout{0};  // lock: 1 ms to 1 h
  std::vector<BallastWish> ballast{};    // hold, restore: each card once
  bool vouched = false;                  // preflight: its owner's word is that the driver can park it
  int devices = 1;                       // preflight: that its program has
  bool operator==(const CheckpointCommand&) const = default;
};

struct CheckpointReply {
  std::uint64_t id = 0;
  CheckpointCall call{};
  CheckpointRefusal refusal = CheckpointRefusal::none;
  std::string detail{};                  // of a refusal: one sentence
  int code = 0;                          // what the driver's call returned; 0 also where none was made
  std::string name{};                    // of that code
  bool final = false;                    // restore: it failed, and no later one can succeed
  ParkState state = ParkState::unknown;  // afterwards, where known
  Duration took{0};                      // of the driver's call
  Duration prepared{0};                  // what came before it: looking, taking ballast and giving it back
  Bytes held{};                          // ballast, afterwards
  Bytes resident{};                      // of the process's memory on the host, afterwards
  bool operator==(const CheckpointReply&) const = default;
  bool ok() const { return refusal == CheckpointRefusal::none; }
};

inline constexpr std::size_t max_checkpoint_line = 8192;

std::string encode(const CheckpointCommand& command);
Result<CheckpointCommand> decode_checkpoint_command(std::string_view line);
std::string encode(const CheckpointReply& reply);
Result<CheckpointReply> decode_checkpoint_reply(std::string_view line);

}  // namespace sublet::gpu
