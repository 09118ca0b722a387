// SPDX-License-Identifier: Apache-2.0
// Why a lease is paused, or can never run again, as data. Plain data.
#pragma once

#include "base/ids.h"
#include "core/reason_args.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace sublet::core {

enum class PauseCauseKind : std::uint8_t {
  owner_request,           // `sublet pause` by the owner
  admin_request,           // … by an admin
  tier,                    // preempted for a lease of a higher tier
  slice,                   // the time slice of a lease of the same tier
  owner_preemption,        // preempted because its owner requested memory for another lease
  admin_preemption,        // … because an admin did
  allocated_while_paused,  // its processes allocated while it was paused
  driver_failed,           // poisoned: the driver can never restore it
  soft_limit,              // it is over its soft limit while others wait
  idle,                    // its program has done nothing for longer than its idle rule allows
  max_continuous,          // its session has held memory for long enough while others wait
  note,                    // text of an earlier version
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
