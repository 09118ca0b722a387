// SPDX-License-Identifier: Apache-2.0
// Whether waiting gets better or worse, in plain words. Pure functions.
#pragma once

#include "meter/deltas.h"

#include <string>
#include <vector>

namespace sublet::meter {

struct WaitSample {
  Ms at = 0;                // end of the wait
  std::int64_t wanted = 0;  // bytes
  Ms waited = 0;
  std::string user{};
};

inline constexpr Ms worth_telling = 1000;  // a shorter wait is not counted as a wait

// Monday 00:00 UTC of the week of `at`.
Ms monday_of(Ms at);

// The smallest value that `percent` of them do not exceed; 0 without values. Reorders them.
Ms percentile(std::vector<Ms>& values, int percent);

// Compares the time since Monday with the same days of the week before; on a Monday, the last two weeks. Amounts before
// `known_since` are missing. `now` is the end of the period, and `is_past`: it is not the present. Each sentence is
// complete, without a full stop: "waits for more than 16 GiB doubled since Monday; 70 % of them were for user ana".
std::vector<std::string> trend_sentences(const std::vector<WaitSample>& waits, Ms now, Ms known_since = 0,
                                         bool is_past = false);

}  // namespace sublet::meter
