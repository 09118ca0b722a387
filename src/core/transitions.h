// SPDX-License-Identifier: Apache-2.0
// Every transition of a lease by its name: what is explained to people, what events tell, and what tests interrupt.
// And one thing more that tests interrupt: a later portion of a plan that grants to thousands (core/portions.h).
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace sublet::core {

inline constexpr std::array<std::string_view, 31> transitions{
    // on the way to the end
    "queued", "granted", "offered", "claimed", "attached", "renewed", "lapsed", "held", "resizing", "resized",
    "pausing", "paused", "resuming", "resumed", "poisoned", "cooperates", "relapsed", "blocked", "stopping", "killing",
    "settled",
    // the end, by its reason
    "released", "expired", "revoked", "owner_gone", "failed", "cancelled", "rejected", "unclaimed", "lost",
    // of many leases at once
    "portion"};

constexpr bool is_transition(std::string_view name) {
  return std::find(transitions.begin(), transitions.end(), name) != transitions.end();
}

}  // namespace sublet::core
