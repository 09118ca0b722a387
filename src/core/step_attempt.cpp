// SPDX-License-Identifier: Apache-2.0
// Events of attempts: an event that does not fit the attempt of its lease is refused. A restart or a store that was
// read again may have changed the attempt before its answer came.
#include "core/step_attempt.h"
#include "core/step_pause.h"
#include "core/step_resume.h"

#include <type_traits>

namespace sublet::core {

Result<LeaseId> on(Step& step, const AttemptEvent& fact) {
  Lease* lease = find(step, fact.lease);
  return std::visit(
      [&](const auto& what) -> Result<LeaseId> {
        using What = std::remove_cvref_t<decltype(what)>;
        constexpr bool resumes = std::is_same_v<What, Unparked> || std::is_same_v<What, DriverReturned>;
        constexpr LeaseState wanted = resumes ? LeaseState::resuming : LeaseState::pausing;
        if (lease == nullptr || lease->state != wanted)
          return not_found(to_string(fact.lease) + " is not " + std::string(to_string(wanted)));
        return happened(step, *lease, what);
      },
      fact.what);
}

}  // namespace sublet::core
