// SPDX-License-Identifier: Apache-2.0
#include "core/methods.h"

#include "base/planted.h"
#include "core/words.h"

#include <algorithm>

namespace sublet::core {
namespace {

// What the driver leaves of each process on a device that it parked: measured, 4 MiB; a context that is kept costs
// more.
constexpr Bytes driver_residue = 64 * MiB;

}  // namespace

Result<PauseMethod> pause_method_of(const Lease& lease) {
  const auto unsafe = [&lease](std::string why, std::string hint) {
    return Error{Code::PauseUnsafe, name_of(lease) + " cannot be paused: " + std::move(why), std::move(hint)};
  };
  if (lease.pausable == Pausable::no && !planted(Bug::pins_do_not_hold))
    return unsafe("its owner pinned it (--pausable no)", "`sublet stop` ends it");
  if (lease.pausable == Pausable::cooperative || lease.pausable == Pausable::interposer)
    return unsafe("it asked for the method " + std::string(to_string(lease.pausable)) + ", which this version has not",
                  "start it with --pausable driver");
  if (lease.owner.kind != OwnerKind::process)
    return unsafe("it has no program of its own that could be parked", "programs under `sublet run` have");
  return PauseMethod::driver;
}

Bytes residue_of(const Lease& lease, PauseMethod) { return std::min(driver_residue, lease.vram); }

bool may_be_ended(const Lease& lease) {
  const bool ours = lease.owner.kind == OwnerKind::process && lease.owner.keeper;
  return lease.tier == Tier::spot && (ours || !lease.had_process);
}

bool might_yield(const Lease& lease) {
  return lease.tier == Tier::spot || (lease.owner.kind == OwnerKind::process && lease.pausable != Pausable::no);
}

}  // namespace sublet::core
