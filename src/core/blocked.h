// SPDX-License-Identifier: Apache-2.0
// What keeps a lease from its room though no other lease has it: processes without a lease, or a card that is gone.
// Computed from the state when asked; reads only.
#pragma once

#include "base/error.h"
#include "core/reason.h"
#include "core/rules.h"
#include "core/state.h"

#include <optional>
#include <string>
#include <vector>

namespace sublet::core {

// What is without a lease and holds bytes where somebody needs them. pid 0: bytes that no listed process is seen to
// hold.
struct UnleasedProcess {
  ProcessRef process;
  std::string name;    // of its program, as everybody may see it; "" if not known
  std::string device;  // uuid
  Bytes bytes;
};

// Of one that waits: the table has room for it, and the card has not. Of one that is parked: its card is gone.
struct Blocked {
  Code code = Code::External;                          // ResumeBlocked: of one that wants back from a pause
  std::vector<UnleasedProcess> unleased_processes;     // the largest first, few of many; none where its card is gone
  ReasonKind kind = ReasonKind::blocked_by_processes;  // the same as a reason …
  ReasonArgs args = {};
  std::string text = {};  // … and as its sentence, which begins with the code
};

// Nothing where the lease does not wait, or waits because of other leases, or for a card that is merely not known.
std::optional<Blocked> what_blocks(const State& state, const Rules& rules, const Lease& lease, Time now);

}  // namespace sublet::core
