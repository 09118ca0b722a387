// SPDX-License-Identifier: Apache-2.0
// What is checked of limits: nobody is asked to yield against the configuration, nor where host memory cannot keep what
// is parked; what is parked stays in memory, and what does not is noticed; and of whom nobody is left, the lease ends
// in its time.
#include "oracle.h"

#include "driver.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using core::LeaseState;
using namespace std::chrono_literals;

// Asked just now, or by another method.
void Oracle::check_limits(const Lease& lease) {
  const auto says = [&lease](const std::string& what) {
    return [&lease, what] { return to_string(lease.id) + " is asked to yield: " + what; };
  };
  verdict_.expect(config_.rules.automatic || !lease.parking->resume_requested ||
                      requested_.contains(lease.parking->cause.preemptor),
                  "displaced-unordered", says("nobody ordered that, and nothing is automatic"));
  check_host(lease.id, world_.ram().pressure().value_or(0));
  const bool by_actor = engine_->actor().ready() && engine_->actor().introduction().uid == 0;
  verdict_.expect(!config_.keeps_from_swap() || !world_.may_swap(lease.id, by_actor, looked_at_),
                  "asked-though-it-may-swap", says("nobody could keep it from the swap device"));
  const bool unknown = lease.owner.kind == core::OwnerKind::token;  // whatever is booked to it may not be all
  verdict_.expect(!config_.keeps_from_swap() || !unknown, "asked-though-it-may-swap",
                  says("nobody knows whom to keep from the swap device"));
}

// Whoever may prevent that, if he is there.
bool Oracle::swaps(LeaseId id) const {
  return config_.keeps_from_swap() && world_.may_swap(id, engine_->actor().introduction().uid == 0);
}

// So the driver said, and it has not been time yet to ask it again.
bool Oracle::driver_barred(LeaseId id) const {
  constexpr Duration barred_for = 2min;
  return swaps(id) || world_.driver().barred(id, world_.awake() - barred_for);
}

// Nobody's pause begins, or goes on when it is locked, while everybody waits for host memory.
void Oracle::check_host(LeaseId id, double pressure) const {
  verdict_.expect(pressure <= config_.rules.ledger_max_pressure, "parked-under-pressure", [&] {
    return fmt::format("{} is to be parked, and for {} of the time everybody waits for host memory", to_string(id),
                       pressure);
  });
}

// What a user's leases have entered, with what this one enters, is within that user's part of the ledger.
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

// What of it is not weighed is not parked.
void Oracle::parks(LeaseId id, std::span<const ProcessRef> weighed) {
  if (engine_ == nullptr) return;
  const auto lease = leases_.find(id);  // what is parked on top was looked at when that was decided
  if (!weighed.empty() && lease != leases_.end() && lease->second.state == LeaseState::pausing)
    check_host(id, world_.ram().least_pressure());  // when that was decided: by now it is stored
  const Lease* stored = weighed.empty() ? nullptr : store_->find(id);
  const bool yields = stored != nullptr && lease != leases_.end() && lease->second.state == LeaseState::pausing;
  verdict_.expect(
      !yields || (stored->parking && stored->parking->held_when_paused == lease->second.parking->held_when_paused),
      "parked-undurably", [&] {
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

void Oracle::check_nothing_automatic(const core::State& state) {
  if (config_.rules.automatic) return;
  for (const core::PreemptionPlan& plan : state.plans()) {
    verdict_.expect(plan.cause == core::Cause::request && requested_.contains(plan.preemptor), "made-unordered", [&] {
      return fmt::format("room is made for {} ({}), and nobody ordered that", to_string(plan.preemptor),
                         static_cast<int>(plan.cause));
    });
  }
  verdict_.expect(state.slices().empty(), "made-unordered", [] { return std::string("a turn is announced"); });
}

// The daemon goes by what was read in this step: one from before the machine slept, say, it does not take.
bool Oracle::was_told(const core::State& state) {
  const std::optional<Time> began = std::exchange(looked_, std::nullopt);
  return began &&
         std::ranges::any_of(state.devices(), [&](const auto& device) { return device.second.read_at == began; });
}

// Whoever was kept from the swap device when it was parked is not there; who is there is known to be.
void Oracle::check_swapped(const core::State& state) const {
  if (!config_.swap) return;
  for (const auto& [ref, process] : world_.processes()) {
    const auto lease = leases_.find(process.lease);
    const bool its = lease != leases_.end() && !lease->second.ended();  // else it is nobody's any more
    verdict_.expect(!its || !process.kept || process.swapped <= Bytes{}, "swapped-though-kept",
                    [&, &process = process] {
                      return fmt::format("{} of process {} of {} are on the swap device", format_size(process.swapped),
                                         process.ref.pid, to_string(process.lease));
                    });
  }
  for (const LeaseId id : state.away()) {
    const Lease& lease = *state.find(id);
    if (!lease.parked() || lease.owner.kind != core::OwnerKind::process) continue;
    const Bytes is = world_.swapped_of(id);
    const auto found = engine_->swapped().find(id);
    const Bytes said = found == engine_->swapped().end() ? Bytes{} : found->second;
    verdict_.expect(is == said, "swap-unseen", [&] {
      return fmt::format("{} of {} are on the swap device, and {} are said to be", format_size(is), to_string(id),
                         format_size(said));
    });
  }
}

// ------------------------------------------------------------------------------------------------ nobody is left

// Of a token's lease while it is asked, or parked: since when nothing of it lives, while the machine was awake.
std::optional<Time> Oracle::deserted(const Lease& lease) const {
  const auto began = pause_began_.find(lease.id);
  if (lease.owner.kind != core::OwnerKind::token || began == pause_began_.end() || world_.inhabited(lease.id))
    return std::nullopt;
  const auto program = world_.programs().find(lease.id);
  return program == world_.programs().end() ? began->second : std::max(began->second, program->second.ended_at);
}

// What the daemon was shown: from then on it knows.
void Oracle::follow_deserted() {
  std::map<LeaseId, Time> seen;
  for (const auto& [id, lease] : leases_) {
    if (lease.state != LeaseState::pausing && lease.state != LeaseState::paused) continue;
    if (!deserted(lease)) continue;
    const auto before = deserted_.find(id);
    seen[id] = before == deserted_.end() ? world_.awake() : before->second;
  }
  deserted_ = std::move(seen);
}

// What is stored of that counts in the next life too, but for time that its line does not have, where the wall clock
// was set back meanwhile.
void Oracle::keep_deserted(Time now) {
  const Duration lost = std::max(world_.awake() - awake_ - (now - last_now_), Duration{});
  for (auto& [id, since] : deserted_) since = since + lost;
  std::erase_if(deserted_, [this](const auto& its) {
    const auto lease = leases_.find(its.first);
    return lease == leases_.end() || !lease->second.parking || !lease->second.parking->orphaned_since;
  });
}

void Oracle::check_deserted(const core::State& state) {
  constexpr Duration late = 2ms;  // an alarm may ring a little after its time
  for (const auto& [id, since] : deserted_) {
    const Lease* lease = state.find(id);
    if (lease == nullptr || lease->state != LeaseState::paused) continue;
    verdict_.expect(world_.awake() - since <= config_.rules.orphan_after + late, "orphan-kept", [&, &id = id] {
      return fmt::format("{} is paused, and nothing of it has lived for {}", to_string(id),
                         format_duration(world_.awake() - since));
    });
  }
}

void Oracle::check_orphaned(const Lease& before, const Lease& lease) {
  const auto since = deserted(before);
  verdict_.expect(since && world_.awake() - *since >= config_.rules.orphan_after, "orphaned-early", [&] {
    return fmt::format(
        "{} ended while it was paused: {}", to_string(lease.id),
        since ? "nothing of it has lived for " + format_duration(world_.awake() - *since) : "something of it lives");
  });
}

}  // namespace sublet::sim
