// SPDX-License-Identifier: Apache-2.0
// Why a lease is paused, or can never run again, as data. Plain data.
#pragma once

#include "base/ids.h"
#include "lease/reason_args.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace sublet::core {

// See lease/pause_causes.inc.
enum class PauseCauseKind : std::uint8_t {
#define SUBLET_PAUSE_CAUSE(kind, sentence) kind,
#include "lease/pause_causes.inc"
#undef SUBLET_PAUSE_CAUSE
};

std::string_view to_string(PauseCauseKind kind);
std::optional<PauseCauseKind> parse_pause_cause_kind(std::string_view text);

struct PauseCause {
  PauseCauseKind kind = PauseCauseKind::owner_request;
  LeaseId preemptor = {};  // the waiting lease for which it is paused; none: nobody waits for its memory
  ReasonArgs args = {};    // the name of the preemptor and what that lease asked for
  bool operator==(const PauseCause&) const = default;
};

}  // namespace sublet::core
