// SPDX-License-Identifier: Apache-2.0
// The protocol of `sublet-gpu checkpoint`: one line of JSON in each direction, answered in order. Both sides are here:
// text in, values out, no socket. Pure functions, any thread. Neither side trusts the bytes of the other.
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
  preflight,   // whether the process can be parked; changes nothing
  state,       // the state in which the driver sees the process
  lock,        // blocks its driver calls and finishes its work; on timeout it ends unlocked
  checkpoint,  // moves its VRAM to its host memory
  hold,        // replaces the held ballast; without ballast: gives it back
  restore,     // takes ballast first if named, gives all ballast back, and restores at once
  unlock,
};

// The reason why a call was refused or failed. `driver`: the driver's own error, see `code` and `name`.
enum class CheckpointRefusal {
  none,
  gone,                // the process has ended, or its pid was reused
  no_right,            // another user's process, and no right to trace it
  not_dumpable,        // a process of this user that may not be traced
  traced,              // a debugger holds it
  stopped,             // it answers no driver call until it is continued
  unsupported_driver,  // the driver has no checkpoints
  no_driver,           // no library, or it does not start; a later call may succeed
  no_cuda,             // the process does not use CUDA
  wrong_state,         // preflight: the process is locked, checkpointed or failed
  timeout,             // lock: the work was not done in time; the process runs on
  not_parkable,        // it uses something that the driver cannot park: visible from outside, or reported by the driver
  // preflight: nobody knows whether the driver can park it, and with this driver a failed try ends the process
  owner_must_vouch,
  no_room,  // the ballast does not fit; nothing was tried
  driver,
};

std::string_view to_string(CheckpointCall call);
std::string_view to_string(CheckpointRefusal refusal);
std::string_view to_string(ParkState state);

// Asked for in addition to a process's own bytes, if there is enough, so that a restore does not fail for lack of
// memory. A failed restore is final.
inline constexpr Bytes ballast_margin = 512 * MiB;

struct BallastWish {
  std::string uuid;  // UUID of the device
  Bytes bytes;       // required bytes; with less the call is refused
  Bytes margin{};    // additional bytes, if free; without them the context of the ballast counts as part of `bytes`
  bool operator==(const BallastWish&) const = default;
};

struct CheckpointCommand {
  std::uint64_t id = 0;
  CheckpointCall call{};
  std::chrono::milliseconds timeout{0};  // lock: 1 ms to 1 h
  std::vector<BallastWish> ballast{};    // hold, restore: each device once
  bool vouched = false;                  // preflight: the owner vouches that the driver can park it
  int devices = 1;                       // preflight: number of devices of the program
  bool operator==(const CheckpointCommand&) const = default;
};

struct CheckpointReply {
  std::uint64_t id = 0;
  CheckpointCall call{};
  CheckpointRefusal refusal = CheckpointRefusal::none;
  std::string detail{};                  // one sentence about the refusal
  int code = 0;                          // return code of the driver's call; 0 also if there was no call
  std::string name{};                    // name of the code
  bool final = false;                    // restore: it failed, and no later restore can succeed
  ParkState state = ParkState::unknown;  // state after the call, if known
  Duration took{0};                      // duration of the driver's call
  Duration prepared{0};                  // time before the driver's call: checks, taking and giving back ballast
  Bytes held{};                          // held ballast after the call
  Bytes resident{};                      // host memory of the process after the call
  bool operator==(const CheckpointReply&) const = default;
  bool ok() const { return refusal == CheckpointRefusal::none; }
};

inline constexpr std::size_t max_checkpoint_line = 8192;

std::string encode(const CheckpointCommand& command);
Result<CheckpointCommand> decode_checkpoint_command(std::string_view line);
std::string encode(const CheckpointReply& reply);
Result<CheckpointReply> decode_checkpoint_reply(std::string_view line);

}  // namespace sublet::gpu
