// SPDX-License-Identifier: Apache-2.0
// Rounds of the agent's threads: when the next one is, and what is told of those that fail.
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"

#include <algorithm>
#include <string>
#include <utility>

namespace sublet::kube {

inline constexpr Duration usual_round = std::chrono::seconds(30), soon = std::chrono::seconds(1);

// 1, 2, 4 … 30 seconds after failures in a row.
inline Duration next_round(int failures) {
  constexpr int most_doublings = 5;
  if (failures == 0) return usual_round;
  return std::min<Duration>(soon * (1 << std::min(failures - 1, most_doublings)), usual_round);
}

// The same problem is told once.
class Complaint {
 public:
  // Returns false, as the failed round does.
  bool tell(const Error& error) {
    const std::string text = error.hint.empty() ? error.detail : error.detail + "; " + error.hint;
    if (text != std::exchange(told_, text)) log::warn("{}", text);
    return false;
  }
  void clear() { told_.clear(); }

 private:
  std::string told_;
};

}  // namespace sublet::kube
