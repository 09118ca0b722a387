// SPDX-License-Identifier: Apache-2.0
// Points in time as people write them.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <optional>
#include <string>
#include <string_view>

namespace sublet {

// A point in time, as it was written.
struct Moment {
  Time at;
  std::optional<Duration> distance{};  // from now, if it was written as a duration
};

enum class Tense { past, future };  // a duration means "ago", or "from now"
enum class Zone { utc, local };     // of a time without a zone; local: of this process

// Parses a time as in RFC 3339, also without zone or seconds and with a blank instead of the T; a day, which means its
// midnight; "now", "today", "yesterday" and "tomorrow"; and a duration as parse_duration() does. Refuses times that are
// not between 1970 and 2200.
Result<Moment> parse_moment(std::string_view text, Time now, Tense tense, Zone zone);

// The same moment for a daemon, whose clock and zone may be others: a duration stays a duration.
std::string to_query(const Moment& moment);

}  // namespace sublet
