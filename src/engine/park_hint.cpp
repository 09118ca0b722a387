// SPDX-License-Identifier: Apache-2.0
#include "engine/park_hint.h"

#include <algorithm>
#include <array>

namespace sublet::engine {
namespace {

struct Hint {
  std::string_view code, text;
};

constexpr auto hints = std::to_array<Hint>({
    {"traced", "end the debugger that holds it (gdb, strace), then ask again"},
    {"stopped", "let it go on first (`kill -CONT`, or thaw its control group), then ask again"},
    {"unsupported_driver",
     "install the vendor's driver 570 or newer, or let it yield by itself, which needs none of this: `sublet "
     "cooperate`"},
    {"no_driver", "`sublet doctor` says what keeps the driver from starting; ask again once it does"},
    {"no_right", "`sublet doctor` says which right is missing; or let it yield by itself: `sublet cooperate`"},
    {"not_dumpable",
     "it keeps itself from being traced (PR_SET_DUMPABLE, or a program file with rights of its own): let it yield by "
     "itself: `sublet cooperate`"},
    {"no_cuda", "nothing of it is on a card: ask again once its program uses one"},
    {"wrong_state", "somebody else has locked or parked it (cuda-checkpoint): have it brought back, then ask again"},
    {"timeout", "ask again when its work on the card is shorter, or let it yield by itself: `sublet cooperate`"},
    {"shared_memory", "let it yield by itself: `sublet cooperate`"},
    {"tree_changing", "ask again once it has started its processes"},
    {"host_memory", "`sublet status` says what host memory takes: resume or end what is parked, or raise ledger.limit"},
    {"measure_timeout", "`sublet status` says whether the store or a card does not answer: ask again when they do"},
    {"driver", "ask again; where it fails again, let it yield by itself: `sublet cooperate`"},
    {"helper", "`sublet doctor` says whether helpers can be started; the daemon's log says what became of this one"},
    {"late", "find out what keeps its program from answering, or raise pause.yield_timeout"},
    {"notify_failed", "find out why its program cannot be told, or have it say anew how it yields: `sublet cooperate`"},
    {"unreachable", "`sublet doctor` says whether the actor, which signals programs, is there: ask again when it is"},
    {"refused", "its program says itself when it can: ask again later"},
    {"internal", "this is a bug of Sublet: report it with the daemon's log"},
});

}  // namespace

std::string_view park_hint(std::string_view code) {
  const auto found = std::ranges::find(hints, code, &Hint::code);
  return found == hints.end() ? std::string_view() : found->text;
}

}  // namespace sublet::engine
