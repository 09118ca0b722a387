// SPDX-License-Identifier: Apache-2.0
#include "pause/park_hint.h"

#include <algorithm>
#include <array>

namespace sublet::pause {
namespace {

struct Hint {
  std::string_view code, text;
};

constexpr auto hints = std::to_array<Hint>({
    {"traced", "detach the debugger from the program (gdb, strace), then retry"},
    {"stopped", "continue the program first (`kill -CONT`, or thaw its control group), then retry"},
    {"unsupported_driver",
     "install the vendor's driver 570 or newer, or make the program cooperative: `sublet cooperate`"},
    {"no_driver", "`sublet doctor` shows why the driver does not start; retry once it does"},
    {"no_right", "`sublet doctor` shows the missing right; or make the program cooperative: `sublet cooperate`"},
    {"not_dumpable",
     "the program forbids tracing (PR_SET_DUMPABLE, or a setuid file): make it cooperative: `sublet cooperate`"},
    {"no_cuda", "the program uses no GPU yet: retry once it does"},
    {"wrong_state", "another tool has locked or parked the program (cuda-checkpoint): restore it, then retry"},
    {"timeout", "retry when its GPU work is shorter, or make the program cooperative: `sublet cooperate`"},
    {"shared_memory", "make the program cooperative: `sublet cooperate`"},
    {"tree_changing", "retry once the program has started all its processes"},
    {"host_memory",
     "resume or end a parked lease, or raise ledger.limit; `sublet status` shows the host memory of each lease"},
    {"measure_timeout", "`sublet status` shows whether the store or a card does not answer; retry when both do"},
    {"driver", "retry; if it fails again, make the program cooperative: `sublet cooperate`"},
    {"helper", "`sublet doctor` shows whether helpers start; the daemon's log shows the fault of this helper"},
    {"late", "find out why the program does not answer, or raise pause.yield_timeout"},
    {"notify_failed", "find out why the program does not get its orders, or register it again: `sublet cooperate`"},
    {"unreachable", "`sublet doctor` shows whether the actor, which signals programs, runs; retry when it does"},
    {"refused", "the program refused; retry later"},
    {"internal", "this is a bug of Sublet: report it with the daemon's log"},
});

}  // namespace

std::string_view park_hint(std::string_view code) {
  const auto found = std::ranges::find(hints, code, &Hint::code);
  return found == hints.end() ? std::string_view() : found->text;
}

}  // namespace sublet::pause
