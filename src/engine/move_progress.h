// SPDX-License-Identifier: Apache-2.0
// The progress of a pause or resume, from bytes that were seen to move. A prediction gives a time, and no bytes.
#pragma once

#include "state/state.h"

namespace sublet::engine {

struct MoveProgress {
  core::Move move = core::Move::pause;
  Bytes moved, total;      // `moved` is measured; 0 while nothing was seen to move
  Bytes per_second;        // 0: not known
  Duration left{};         // estimated rest; 0: any moment
  bool measured = false;   // false: no bytes were seen to move yet, so that `left` is predicted from earlier moves
  bool late = false;       // the move takes longer than expected
  bool under_way = false;  // false: the program is not told, or the driver waits until it is at rest
};

// Measurements of a move.
struct MoveSeen {
  Bytes bytes;               // bytes that left the card or came back, by a reading or by the growth of host memory
  Duration since_order{};    // time since the order
  Duration since_copying{};  // time since the bytes began to move
  bool stuck = false;        // the driver did not return in time
  bool under_way = false;    // as in MoveProgress
};

MoveProgress measure_progress(const core::Moving& moving, const MoveSeen& seen);

}  // namespace sublet::engine
