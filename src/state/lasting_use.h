// SPDX-License-Identifier: Apache-2.0
// Tells unleased bytes of a device that last, such as those of a desktop, from bytes of programs that come and go.
#pragma once

#include "base/units.h"
#include "lease/facts.h"

#include <deque>
#include <map>

namespace sublet::core {

// A value without a clock: each reading brings its time. Before the first reading nothing is known, so that all bytes
// of the first reading count as lasting.
class LastingUse {
 public:
  static constexpr Duration least_age = std::chrono::minutes(1);

  // Notes a reading: the bytes of each listed process without a lease, and the unleased bytes of no listed process.
  void note(const std::map<ProcessRef, Bytes>& listed, Bytes unlisted, Time began);
  // The present bytes of processes that were listed for `least_age`, and the least unlisted bytes in that time.
  Bytes bytes() const { return bytes_; }

 private:
  // Unlisted bytes were no less than this from the entry before until `until`.
  struct Low {
    Bytes bytes;
    Time until;  // when the next reading began; of the last entry: never
  };

  std::map<ProcessRef, Time> listed_since_;
  std::deque<Low> lows_;  // of the last `least_age`, the smallest first
  Bytes bytes_;
};

}  // namespace sublet::core
