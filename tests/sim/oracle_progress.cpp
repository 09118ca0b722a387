// SPDX-License-Identifier: Apache-2.0
// What is checked of progress: where somebody waits, others could make room for it beyond any doubt, and nobody is on
// the way, somebody is asked; and who is to be asked is.
#include "core/methods.h"
#include "oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using core::LeaseState;
using core::PauseMethod;
using namespace std::chrono_literals;

namespace {

constexpr Duration asked_within = 8s;  // a reading, and a moment: what changes without one may wait for the next
constexpr int commits_before = 5;      // of what was decided before, and of the decision itself: nothing is done before
constexpr std::size_t asks = 8;        // so many of those who wait

}  // namespace

// Programs of a lower tier that Sublet started, whose pauses never failed, and of which something could be parked: of
// those there is no doubt that they could be asked, and could be when it was decided.
bool Oracle::surely_yields(const core::State& state, const Lease& lease, const std::string& device,
                           core::Tier preemptor, Time now) const {
  const bool lower = lease.state == LeaseState::active && is_on(lease, device) && lease.tier < preemptor;
  const bool program = lease.owner.kind == core::OwnerKind::process && lease.owner.keeper && !lease.cooperation;
  const bool may = lease.pausable == core::Pausable::automatic || lease.pausable == core::Pausable::driver;
  if (!lower || !program || !may || lease.unfit || lease.preemption_request || lease.stop_requested) return false;
  const core::Standing standing = state.standing(lease.id);
  const core::MethodRecord* record = state.record(lease.whose(), PauseMethod::driver);
  if (driver_barred(lease.id)) return false;
  return core::held_by(state, lease) <= core::ledger_left(state, config_.rules, lease.uid) &&
         now - standing.restored > 3s && standing.ineligible_until + 3s <= now &&
         (record == nullptr || record->reliability() >= 1);
}

// Somebody is on the way out or in, ends, or is about to be given room.
bool Oracle::somebody_moves(const core::State& state, const std::string& device) const {
  return std::ranges::any_of(state.devices().at(device).leases, [&](LeaseId id) {
    const Lease& lease = *state.find(id);
    if (state.stuck(id)) return false;
    return is_moved(lease) || lease.ended() || lease.state == LeaseState::offered || lease.stop_requested;
  });
}

// Those whom it has to wait for are asked one after the other, without a pause between them.
void Oracle::check_under_way(const core::State& state, Time now) {
  if (stands_.empty() && state.plans().empty()) return;
  std::map<LeaseId, Stands> stands;
  for (const core::PreemptionPlan& plan : state.plans()) {
    std::vector<std::string> devices = plan.devices;
    std::vector<LeaseId> victims;
    for (const core::Victim& victim : plan.victims) {
      victims.push_back(victim.lease);
      if (const auto its = leases_.find(victim.lease); its != leases_.end())
        devices.insert(devices.end(), its->second.devices.begin(), its->second.devices.end());
    }
    const bool moves = std::ranges::any_of(devices, [&](const std::string& device) {
      return !state.devices().contains(device) || known(device, now) == nullptr || somebody_moves(state, device);
    });
    if (moves) continue;
    const auto before = stands_.find(plan.preemptor);
    const bool same = before != stands_.end() && before->second.victims == victims;
    Stands& its = stands[plan.preemptor] = {same ? before->second.since : now + napped_, victims};
    verdict_.expect(now - its.since <= asked_within + commits_before * config_.longest_commit(), "nobody-moves", [&] {
      std::string who;
      for (const LeaseId id : victims)
        if (const Lease* lease = state.find(id))
          who += fmt::format(" {} ({})", to_string(id), core::to_string(lease->state));
      return fmt::format("{} ago it was decided who makes room for {}, and nobody was asked since:{}",
                         format_duration(now - its.since), to_string(plan.preemptor), who);
    });
  }
  stands_ = std::move(stands);
}

void Oracle::check_progress(const core::State& state, Time now) {
  if (state.queue().empty() || !config_.rules.automatic) return unasked_.clear();
  std::map<LeaseId, Time> unasked;
  if (state.queue().size() <= asks) {
    for (const auto& [id, lease] : leases_) {
      if (!waits(lease) || !could_ask(state, lease, now)) continue;
      const auto before = unasked_.find(id);
      const Time since = unasked[id] = before == unasked_.end() ? now + napped_ : before->second;
      const Duration within = asked_within + commits_before * config_.longest_commit();
      verdict_.expect(now - since <= within, "nobody-asked", [&, &id = id] {
        return fmt::format("for {} others could have made room for {}, and nobody was asked",
                           format_duration(now - since), to_string(id));
      });
    }
  }
  unasked_ = std::move(unasked);
}

// On the one device that it may have: all of them together are enough, host memory takes them all, and nobody else is
// in the way.
bool Oracle::could_ask(const core::State& state, const Lease& waiter, Time now) const {
  const bool in_place = waiter.waits_in_place();
  const std::string& device = in_place                   ? waiter.devices.front()
                              : config_.cards.size() > 1 ? waiter.wanted_device
                                                         : World::uuid_of(0);
  const bool one = in_place ? waiter.devices.size() == 1 : waiter.device_count == 1;
  if (!one || !state.devices().contains(device)) return false;
  if (waiter.pausable == core::Pausable::no || waiter.preemption_request)
    return false;  // the one may be kept out by held room
  const Reading* reading = known(device, now);
  if (reading == nullptr || state.plan_on(device) != nullptr || somebody_moves(state, device)) return false;
  const Bytes free = state.effective_free(state.devices().at(device), config_.rules, now);
  if (free != capacity(*reading) - claimed(device, *reading)) return false;
  Bytes gain, held;
  for (const auto& [id, lease] : leases_) {
    if (!is_on(lease, device) || id == waiter.id) continue;
    if (lease.ended() || end_is_known(lease, now)) return false;  // it may be worth while to wait for that
    if (surely_ends(state, lease, waiter.tier, now)) {
      gain += counted(lease, device, *reading);
      continue;
    }
    if (!surely_yields(state, lease, device, waiter.tier, now) || reading->used_by(id) <= Bytes{}) continue;
    gain += counted(lease, device, *reading) - core::residue_of(state, lease, core::PauseMethod::driver);
    held += core::held_by(state, lease);
  }
  const Bytes lacks = state.need(waiter, device) - free;
  return lacks > Bytes{} && gain >= lacks && held <= ledger_left();
}

}  // namespace sublet::sim
