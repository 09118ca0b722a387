// SPDX-License-Identifier: Apache-2.0
#include "engine/move_progress.h"

#include <algorithm>

namespace sublet::engine {
namespace {

// Less than one in this many parts may be noise of other work.
constexpr std::int64_t noise = 50;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

MoveProgress measure_progress(const core::Moving& moving, const MoveSeen& seen) {
  MoveProgress progress;
  progress.move = moving.move;
  progress.total = moving.bytes;
  progress.late = seen.stuck || seen.since_order > moving.takes.at_most;
  progress.under_way = seen.under_way;
  progress.measured = seen.under_way && seen.bytes.count > moving.bytes.count / noise;
  if (progress.measured) progress.moved = std::min(seen.bytes, moving.bytes);
  if (moving.move == core::Move::settle) {
    progress.measured = true;  // its card is read, whatever the readings show
    progress.left = std::max(moving.takes.likely - seen.since_order, Duration{});
  } else if (progress.measured) {
    const double rate = static_cast<double>(progress.moved.count) / std::max(seconds(seen.since_copying), 1e-3);
    progress.per_second = {static_cast<std::int64_t>(rate)};
    const double left = static_cast<double>((progress.total - progress.moved).count) / std::max(rate, 1.0);
    progress.left = Duration(static_cast<std::int64_t>(std::min(left, 1e6) * 1e9));
  } else if (!seen.under_way) {
    progress.left = moving.takes.likely;  // counts from the moment when the program is at rest
  } else if (!progress.late) {
    progress.left = std::max(moving.takes.likely - seen.since_copying, Duration{});
  }
  return progress;
}

}  // namespace sublet::engine
