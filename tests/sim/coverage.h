// SPDX-License-Identifier: Apache-2.0
// How often each case of a lease was met: transitions (lease/transitions.h) with the end reasons, results of pause and
// resume orders, refusals of pauses. A case that is never met is not tested, whatever the oracles say.
#pragma once

#include "lease/transitions.h"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace sublet::sim {

// Codes of orders that were not carried out (pause::ParkOutcome::code).
inline constexpr std::array<std::string_view, 26> park_failures{
    "gone", "no_right", "not_dumpable", "owner_must_vouch", "traced", "stopped", "unsupported_driver", "no_driver",
    "no_cuda", "wrong_state", "timeout", "not_parkable", "no_room", "driver", "stuck", "helper", "tree_changing",
    "failed", "withdrawn", "host_memory", "measure_timeout", "shared_memory",
    // of a cooperative program
    "refused", "late", "unreachable", "swap"};

// Refusals before any pause order, by a part of their text.
struct PauseRefusal {
  std::string_view name, words;
};
inline constexpr std::array<PauseRefusal, 14> pause_refusals{{
    {"not-active", "pause needs a lease that is active"},
    {"being-ended", "its program is being ended"},
    {"then-ended", "is to be ended as soon as its program runs again"},
    {"pinned", "its owner pinned it"},
    {"no-interposer", "which this version does not have"},
    {"not-said-how", "its program has not registered"},
    {"no-program", "it has no program that the driver could park"},
    {"not-granted", "its owner has not allowed to park it"},
    {"owner_must_vouch", "the driver parks it only if its owner vouches for it"},
    {"unfit", "the driver cannot park it"},
    {"may-swap", "the kernel may swap its parked memory out"},
    {"pressure", "the machine waited for memory"},
    {"share", "ledger.user_share or"},
    {"ledger", "more may be parked"},
}};

class Coverage {
 public:
  static constexpr std::size_t size = core::interruptible.size() + park_failures.size() + pause_refusals.size();
  using Counts = std::array<std::uint64_t, size>;

  void happened(std::string_view transition);  // by the transition's name
  void failed(std::string_view code);          // by the code of a failed order
  void refused(std::string_view words);        // by the text of a refused pause
  const Counts& counts() const { return counts_; }
  void add(const Coverage& other);
  void set(std::span<const std::uint64_t, size> counts);

  void print() const;
  // Prints all cases that were never met. False: one of them should have been met in a campaign of so many runs.
  bool complete() const;

 private:
  Counts counts_{};
};

}  // namespace sublet::sim
