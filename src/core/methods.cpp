// SPDX-License-Identifier: Apache-2.0
#include "core/methods.h"

#include "base/planted.h"
#include "core/words.h"

#include <algorithm>
#include <utility>

namespace sublet::core {
namespace {

// What the driver leaves of each process on a device that it parked: measured, 4 MiB; a context that is kept costs
// more.
constexpr Bytes driver_residue = 64 * MiB;

// A program that yields by itself does it better than the driver can, unless it fails as often as not.
constexpr double trusted = 0.5;

// Why there is none, in the order in which something can be done about it.
Error no_method(const Lease& lease) {
  const auto unsafe = [&lease](std::string why, std::string hint) {
    return Error{Code::PauseUnsafe, name_of(lease) + " cannot be paused: " + std::move(why), std::move(hint)};
  };
  if (lease.pausable == Pausable::no) return unsafe("its owner pinned it (--pausable no)", "`sublet stop` ends it");
  if (lease.pausable == Pausable::interposer)
    return unsafe("it asked for the method interposer, which this version has not",
                  "start it with --pausable auto or driver");
  if (lease.pausable == Pausable::cooperative)
    return unsafe("it asked for the method cooperative, and its program has not said how it yields",
                  "`sublet cooperate`, the C library and POST /v1/leases/{id}/cooperate say it");
  if (lease.owner.kind != OwnerKind::process)
    return unsafe("it has no program of its own that could be parked, and none has said that it yields by itself",
                  "programs under `sublet run` have, and `sublet cooperate` says how one yields");
  if (lease.unfit && lease.unfit->kind == Unfit::unvouched)
    return unsafe("the driver parks it on its owner's word only: " + lease.unfit->why,
                  "if it uses none of that: sublet pause --grant " + lease.consumer +
                      " (or start it with --pausable driver); else let it yield by itself (`sublet cooperate`)");
  if (lease.unfit)
    return unsafe("the driver cannot park it: " + lease.unfit->why,
                  "it can yield by itself: `sublet cooperate` says how");
  return unsafe("Sublet did not start its program, and nobody granted that it be parked",
                "its owner can: sublet pause --grant " + lease.consumer);
}

}  // namespace

// Whoever starts a program by `sublet run` has thereby agreed to all of them.
std::vector<PauseMethod> pause_methods_of(const State& state, const Lease& lease) {
  const bool any =
      lease.pausable == Pausable::automatic || (lease.pausable == Pausable::no && planted(Bug::pins_do_not_hold));
  std::vector<PauseMethod> methods;
  if (lease.cooperation && (any || lease.pausable == Pausable::cooperative))
    methods.push_back(PauseMethod::cooperative);
  const bool agreed = lease.owner.keeper || state.granted(lease.whose()) || planted(Bug::grants_do_not_matter);
  if (lease.owner.kind == OwnerKind::process && agreed && !lease.unfit && (any || lease.pausable == Pausable::driver))
    methods.push_back(PauseMethod::driver);
  if (methods.size() == 2) {
    const MethodRecord* own = state.record(lease.whose(), PauseMethod::cooperative);
    const MethodRecord* drivers = state.record(lease.whose(), PauseMethod::driver);
    const double other = drivers == nullptr ? 1.0 : drivers->reliability();
    if (own != nullptr && own->reliability() < std::min(trusted, other)) std::swap(methods[0], methods[1]);
  }
  return methods;
}

Result<PauseMethod> pause_method_of(const State& state, const Lease& lease) {
  const auto methods = pause_methods_of(state, lease);
  if (methods.empty()) return no_method(lease);
  return methods.front();
}

bool nothing_to_park(const State& state, const Lease& lease) {
  if (lease.state != LeaseState::active) return false;
  const auto methods = pause_methods_of(state, lease);
  const Use use = state.use(lease.id);
  return methods == std::vector{PauseMethod::driver} && use.used == Bytes{} && !use.untold;
}

Bytes residue_of(const Lease& lease, PauseMethod method) {
  const bool declared = method == PauseMethod::cooperative && lease.cooperation;
  return std::min(declared ? lease.cooperation->residue : driver_residue, lease.vram);
}

Bytes held_by(const State& state, const Lease& lease) {
  Bytes bytes;
  for (const std::string& device : lease.devices) bytes += state.charged(lease, device);
  return bytes;
}

Bytes ledger_left(const State& state, const Rules& rules, std::optional<std::uint32_t> uid) {
  return state.ledger_free(rules, {Bytes{std::int64_t{1} << 61}, std::nullopt, false}, uid);
}

std::optional<Bytes> beyond_ledger(const State& state, const Rules& rules, const Lease& lease) {
  if (lease.parking) return std::nullopt;
  const Bytes takes = ledger_left(state, rules, lease.uid);
  return held_by(state, lease) > takes ? std::optional(takes) : std::nullopt;
}

bool may_be_ended(const Lease& lease) {
  const bool ours = lease.owner.kind == OwnerKind::process && lease.owner.keeper;
  return lease.tier == Tier::spot && (ours || !lease.had_process);
}

bool is_ended_for_room(const State& state, const Rules& rules, const Lease& lease) {
  if (!may_be_ended(lease)) return false;
  if (pause_methods_of(state, lease).empty()) return true;
  Bytes most = rules.ledger_limit;
  if (rules.host_memory) most = std::min(most, *rules.host_memory - rules.ledger_reserve);
  return !lease.parking && lease.reserved() > std::max(most, Bytes{});
}

bool might_yield(const Lease& lease) {
  if (lease.tier == Tier::spot) return true;
  return lease.pausable != Pausable::no && (lease.owner.kind == OwnerKind::process || lease.cooperation);
}

}  // namespace sublet::core
