// SPDX-License-Identifier: Apache-2.0
// How much processor time the program of a lease gets while the lease uses more than its share: launches need a
// processor. Values only; one thread at a time.
#pragma once

#include "share/audit.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace sublet::share {

class Throttle {
 public:
  // A reading that was taken `at`. `used`: percent of the device on which the lease is furthest over its share; unset:
  // not known, and nothing is held back for it. `exceeded`: the use has been above the share for some time.
  void look(Time at, std::optional<double> used, bool exceeded, int share) {
    if (!used) return reset();
    if (at - last_ < window) return;  // the use is that of a window
    last_ = at;
    if (percent_ == 0) {
      if (exceeded) percent_ = first;
    } else if (*used > share + tolerance) {
      percent_ = std::max(least, percent_ * std::max(share / *used, 0.5));
    } else if (*used <= share) {
      percent_ *= *used <= share / 2.0 ? 2 : 1.25;
      if (percent_ >= whole) percent_ = 0;
    }
  }
  void reset() { percent_ = 0; }
  // Percent of one processor, 1 to 99; 0: not limited.
  int percent() const { return static_cast<int>(std::ceil(percent_)); }

 private:
  static constexpr double first = 50, least = 1, whole = 99;
  double percent_ = 0;
  Time last_{};
};

}  // namespace sublet::share
