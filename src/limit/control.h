// SPDX-License-Identifier: Apache-2.0
// Whether a process of a lease is held by its limit. A process that asked for its limit is not controlled by that: the
// card has to show it. Values only; one thread at a time.
#pragma once

#include "base/units.h"

#include <optional>
#include <string>
#include <string_view>

namespace sublet::limit {

// Why a process is uncontrolled; the text forms are those of the API.
enum class Escape { never_asked, other_user, mps, debugger, bypassed, uncovered, beyond_credit };
constexpr std::string_view to_string(Escape why) {
  switch (why) {
    case Escape::never_asked: return "never_asked";
    case Escape::other_user: return "other_user";
    case Escape::mps: return "mps";
    case Escape::debugger: return "debugger";
    case Escape::bypassed: return "bypassed";
    case Escape::uncovered: return "uncovered";
    case Escape::beyond_credit: break;
  }
  return "beyond_credit";
}

// A process of a lease as a reading of a device shows it.
struct Seen {
  Bytes used;                      // by the card
  std::optional<Bytes> credit{};   // unset: it has no limit
  std::optional<Bytes> context{};  // charged for its context; unset: not known
  bool is_uncovered = false;       // the library says that calls may pass its hooks
  bool is_others = false;          // its user is not that of the lease
  bool is_traced = false;          // a debugger is attached
  bool is_bypassing = false;       // its libraries show that calls may pass the hooks, or that it never began with them
  std::string name{};              // the kernel's short name of its program; read only where it has no limit
};

// A process without a limit may hold so much, as a tool that only looks does.
inline constexpr Bytes unlimited_slack = 64 * MiB;
// The driver takes so much by itself, for modules, local memory and graphs.
inline constexpr Bytes driver_slack = 256 * MiB;
// A context of unknown size.
inline constexpr Bytes context_slack = 1 * GiB;

inline std::optional<Escape> judge(const Seen& seen) {
  if (!seen.credit) {
    if (seen.used <= unlimited_slack) return std::nullopt;
    if (seen.name.starts_with("nvidia-cuda-mps")) return Escape::mps;
    if (seen.is_others) return Escape::other_user;
    if (seen.is_traced) return Escape::debugger;
    return seen.is_bypassing ? Escape::bypassed : Escape::never_asked;
  }
  if (seen.is_uncovered && seen.used > unlimited_slack) return Escape::uncovered;
  const Bytes slack = driver_slack + (seen.context.value_or(Bytes{}) > Bytes{} ? Bytes{} : context_slack);
  if (seen.used <= *seen.credit + slack) return std::nullopt;
  return seen.is_bypassing ? Escape::bypassed : Escape::beyond_credit;
}

}  // namespace sublet::limit
