// SPDX-License-Identifier: Apache-2.0
// Checks of the host: its budget for parked memory, its pressure, and its swap device.
#include "oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using core::LeaseState;

void Oracle::check_ledger(const Lease& lease) {
  Bytes entries = lease.parking->host_bytes;
  for (const auto& [id, other] : leases_)
    if (id != lease.id && other.parking && !other.ended()) entries += other.parking->host_bytes;
  verdict_.expect(entries <= config_.rules.ledger_limit, "ledger-limit", [&] {
    return fmt::format("{} is entered with {}, {} in all", to_string(lease.id), format_size(lease.parking->host_bytes),
                       format_size(entries));
  });
}

// One user's entries are within that user's share of the ledger, while others have leases.
void Oracle::check_share(const Lease& lease) const {
  Bytes entries = lease.parking->host_bytes;
  bool others = false;
  for (const auto& [id, other] : leases_) {
    if (other.ended() || id == lease.id) continue;
    others |= other.uid != lease.uid;
    if (other.uid == lease.uid && other.parking) entries += other.parking->host_bytes;
  }
  const Bytes share{static_cast<std::int64_t>(static_cast<double>(config_.rules.ledger_limit.count) *
                                              config_.rules.ledger_user_share)};
  verdict_.expect(!others || entries <= share, "beyond-share", [&] {
    return fmt::format("{} is entered with {}, its user's leases with {}, and one user may take {}",
                       to_string(lease.id), format_size(lease.parking->host_bytes), format_size(entries),
                       format_size(share));
  });
}

// No pause begins, nor goes on once it is locked, while the host waits for memory.
void Oracle::check_pressure(LeaseId id, double pressure) const {
  verdict_.expect(pressure <= config_.rules.ledger_max_pressure, "parked-under-pressure", [&] {
    return fmt::format("{} is to be parked, and for {} of the time the host waits for memory", to_string(id), pressure);
  });
}

void Oracle::parks(LeaseId id, std::span<const ProcessRef> weighed) {
  if (engine_ == nullptr) return;
  const auto lease = leases_.find(id);
  const bool pauses = lease != leases_.end() && lease->second.state == LeaseState::pausing;
  if (pauses) check_pressure(id, world_.ram().least_pressure());  // decided a commit ago
  // The processes of a cooperative program may not all be booked.
  const bool unknown = pauses && weighed.empty() && lease->second.owner.kind == core::OwnerKind::token &&
                       lease->second.parking->method == core::PauseMethod::cooperative;
  verdict_.expect(!config_.keeps_from_swap() || !unknown, "parked-where-it-swaps", [&] {
    return fmt::format("{} is told to yield, and its processes to keep from the swap device are unknown",
                       to_string(id));
  });
  const Lease* stored = weighed.empty() ? nullptr : store_->find(id);
  const Lease* decided = core::find(engine_->state(), id);  // perhaps in a batch that the store does not have yet
  const bool as_stored = stored == nullptr || !pauses || decided == nullptr || !decided->parking ||
                         (stored->parking && stored->parking->held_when_paused == decided->parking->held_when_paused);
  verdict_.expect(as_stored, "parked-undurably", [&] {
    return fmt::format("{} is to be parked as it was weighed, and what it holds is not stored", to_string(id));
  });
  const auto swaps = [this](ProcessRef ref) {
    const auto process = world_.processes().find(ref);
    return process != world_.processes().end() && world_.ram().may_swap(process->second.group, false);
  };
  const bool any = weighed.empty() ? world_.may_swap(id, false) : std::ranges::any_of(weighed, swaps);
  verdict_.expect(!config_.keeps_from_swap() || !any, "parked-where-it-swaps", [&] {
    return fmt::format("{} is {}, and what is parked may be written to the swap device", to_string(id),
                       weighed.empty() ? "told to yield" : "to be parked as it was weighed");
  });
}

// A process that was kept from the swap device when it was parked is not there; the others' bytes there are known.
void Oracle::check_swapped(const core::State& state) const {
  if (!config_.swap) return;
  for (const auto& [ref, process] : world_.processes()) {
    const auto lease = leases_.find(process.lease);
    const bool its = lease != leases_.end() && !lease->second.ended();
    verdict_.expect(!its || !process.kept || process.swapped <= Bytes{}, "swapped-though-kept",
                    [&, &process = process] {
                      return fmt::format("{} of process {} of {} are on the swap device", format_size(process.swapped),
                                         process.ref.pid, to_string(process.lease));
                    });
  }
  for (const LeaseId id : state.pauses.away) {
    const Lease& lease = *core::find(state, id);
    if (!lease.parked() || lease.owner.kind != core::OwnerKind::process) continue;
    const Bytes is = world_.swapped_of(id);
    const auto found = engine_->observer().swapped().find(id);
    const Bytes said = found == engine_->observer().swapped().end() ? Bytes{} : found->second;
    verdict_.expect(is == said, "swap-unseen", [&] {
      return fmt::format("{} of {} are on the swap device, and {} are said to be", format_size(is), to_string(id),
                         format_size(said));
    });
  }
}

}  // namespace sublet::sim
