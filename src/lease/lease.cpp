// SPDX-License-Identifier: Apache-2.0
#include "lease/lease.h"

#include <algorithm>
#include <utility>

namespace sublet::core {
namespace {

template <typename Enum, std::size_t N>
using Names = std::array<std::pair<Enum, std::string_view>, N>;

constexpr Names<LeaseState, 8> lease_states{{
    {LeaseState::queued, "queued"},
    {LeaseState::offered, "offered"},
    {LeaseState::active, "active"},
    {LeaseState::pausing, "pausing"},
    {LeaseState::paused, "paused"},
    {LeaseState::resuming, "resuming"},
    {LeaseState::poisoned, "poisoned"},
    {LeaseState::ended, "ended"},
}};

constexpr Names<EndReason, 11> end_reasons{{
    {EndReason::none, "none"},
    {EndReason::released, "released"},
    {EndReason::expired, "expired"},
    {EndReason::revoked, "revoked"},
    {EndReason::owner_gone, "owner_gone"},
    {EndReason::over_limit, "over_limit"},
    {EndReason::failed, "failed"},
    {EndReason::cancelled, "cancelled"},
    {EndReason::rejected, "rejected"},
    {EndReason::unclaimed, "unclaimed"},
    {EndReason::lost, "lost"},
}};

constexpr Names<Tier, 5> tiers{{
    {Tier::spot, "spot"},
    {Tier::batch, "batch"},
    {Tier::standard, "standard"},
    {Tier::interactive, "interactive"},
    {Tier::critical, "critical"},
}};

constexpr Names<Pausable, 5> pausables{{
    {Pausable::automatic, "auto"},
    {Pausable::cooperative, "cooperative"},
    {Pausable::interposer, "interposer"},
    {Pausable::driver, "driver"},
    {Pausable::no, "no"},
}};

constexpr Names<OwnerKind, 4> owner_kinds{{
    {OwnerKind::connection, "connection"},
    {OwnerKind::process, "process"},
    {OwnerKind::token, "token"},
    {OwnerKind::group, "group"},
}};

constexpr Names<PauseMethod, 3> pause_methods{{
    {PauseMethod::cooperative, "cooperative"},
    {PauseMethod::interposer, "interposer"},
    {PauseMethod::driver, "driver"},
}};

constexpr Names<CooperationWay, 3> cooperation_ways{{
    {CooperationWay::poll, "poll"},
    {CooperationWay::webhook, "webhook"},
    {CooperationWay::signal, "signal"},
}};

template <typename Enum, std::size_t N>
std::string_view name_of(const Names<Enum, N>& names, Enum value) {
  for (const auto& [known, name] : names)
    if (known == value) return name;
  return "unknown";
}

template <typename Enum, std::size_t N>
std::optional<Enum> value_of(const Names<Enum, N>& names, std::string_view text) {
  for (const auto& [value, name] : names)
    if (name == text) return value;
  return std::nullopt;
}

}  // namespace

std::vector<std::string> Lease::certain_devices() const {
  if (waits_in_place()) return devices;
  return std::ssize(wanted_devices) == device_count ? wanted_devices : std::vector<std::string>();
}

// A CUDA program sees one MIG slice, and beside a slice no other device. So a lease of several devices has no slice.
bool may_use(const Lease& lease, std::string_view device) {
  if (lease.device_count > 1 && device.starts_with("MIG-")) return false;
  const std::vector<std::string>& named = lease.waits_in_place() ? lease.devices : lease.wanted_devices;
  return named.empty() || std::ranges::find(named, device) != named.end();
}

void Lease::count_parked(Time now) {
  if (parked() == parked_at.has_value()) return;
  parked_for = parked_until(now);
  parked_at = parked() ? std::optional(now) : std::nullopt;
}

void Lease::count_size(Time now) {
  if (!granted_at) return;
  using Real = long double;  // of what a store may hold, no difference of three times need be one
  const auto real = [](Duration duration) { return static_cast<Real>(duration.count()); };
  const Sized earlier = sized.value_or(Sized{{}, *granted_at, {}});
  const Duration parked = parked_until(now);
  const Real before = std::max<Real>(0, real(earlier.until - *granted_at) - real(earlier.parked));
  const Real latest = std::max<Real>(0, real(now - earlier.until) - (real(parked) - real(earlier.parked)));
  Bytes mean = vram;
  if (before + latest > 0)
    mean.count = static_cast<std::int64_t>(
        (before * static_cast<Real>(earlier.mean.count) + latest * static_cast<Real>(vram.count)) / (before + latest));
  sized = Sized{mean, now, parked};
}

std::string_view to_string(LeaseState state) { return name_of(lease_states, state); }
std::string_view to_string(EndReason reason) { return name_of(end_reasons, reason); }
std::string_view to_string(Tier tier) { return name_of(tiers, tier); }
std::string_view to_string(Pausable pausable) { return name_of(pausables, pausable); }
std::string_view to_string(OwnerKind kind) { return name_of(owner_kinds, kind); }
std::string_view to_string(PauseMethod method) { return name_of(pause_methods, method); }
std::string_view to_string(CooperationWay way) { return name_of(cooperation_ways, way); }

std::optional<LeaseState> parse_lease_state(std::string_view text) { return value_of(lease_states, text); }
std::optional<EndReason> parse_end_reason(std::string_view text) { return value_of(end_reasons, text); }
std::optional<Tier> parse_tier(std::string_view text) { return value_of(tiers, text); }
std::optional<Pausable> parse_pausable(std::string_view text) { return value_of(pausables, text); }
std::optional<OwnerKind> parse_owner_kind(std::string_view text) { return value_of(owner_kinds, text); }
std::optional<PauseMethod> parse_pause_method(std::string_view text) { return value_of(pause_methods, text); }
std::optional<CooperationWay> parse_cooperation_way(std::string_view text) { return value_of(cooperation_ways, text); }

bool Lease::is_preempted() const { return parking && !resize && parking->cause.kind == PauseCauseKind::tier; }

}  // namespace sublet::core
