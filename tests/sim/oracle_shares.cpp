// SPDX-License-Identifier: Apache-2.0
// What is checked of turns where nothing else decides who has a device: equals that all want it, that can all be
// paused, and that nobody disturbs. Who has had least does not go on waiting while others have had more by a quantum;
// nobody leaves who would fit; and no more than a tenth of the time goes into switching. Who had how much is counted
// here from what is stored, by the same rule (0016): who comes starts with as much as the one who had least.
#include "core/methods.h"
#include "oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using core::LeaseState;
using core::Move;
using core::PauseMethod;
using namespace std::chrono_literals;

namespace {

constexpr Duration start_up = 40s;      // until its program is seen on the device, at most
constexpr Duration unsure = 15s;        // when counting began is not known more exactly
constexpr Duration long_enough = 3min;  // to tell what switching takes on the average
constexpr double by_chance = 1.5;       // times what was expected of it: a single move takes up to twice as long

}  // namespace

// When it is out, at most.
Bytes Oracle::keeps(const Lease& lease) const {
  const Bytes said = lease.cooperation ? lease.cooperation->residue : Bytes{};
  const Bytes parked = core::residue_of(engine_->state(), lease, core::PauseMethod::driver);
  return std::min(std::max(said, parked), lease.vram);
}

bool Oracle::waits_on(const Lease& lease, const std::string& device) const {
  if (!waits(lease)) return false;
  if (lease.waits_in_place()) return is_on(lease, device);
  return lease.wanted_device.empty() || lease.wanted_device == device;
}

// It has its room, and its program is not there yet.
bool Oracle::starts_up(const Lease& lease, const std::string& device) const {
  return lease.state == LeaseState::active &&
         (lease.owner.kind != core::OwnerKind::process || seen_to_use(lease.id, device).value_or(Bytes{}) <= Bytes{});
}

// It may be asked at any time, or comes into it when it may have its room; and it wants no other device.
bool Oracle::takes_slices(const core::State& state, const Lease& lease, const std::string& device, Time now) const {
  const bool here = lease.device_count == 1 && (config_.cards.size() == 1 || lease.wanted_device == device);
  const bool waits_first = lease.state == LeaseState::queued;
  if (!here || lease.resize || lease.preemption_request || lease.unfit || lease.stop_requested) return false;
  if (end_is_known(lease, now)) return false;  // it may be worth while to wait for that
  if (lease.pausable != core::Pausable::automatic || lease.state == LeaseState::offered) return false;
  if (waits_first) return lease.min_vram <= Bytes{};
  if (driver_barred(lease.id)) return false;
  if (starts_up(lease, device)) return now - std::max(*lease.granted_at, lease.resumed_at.value_or(Time{})) < start_up;
  return lease.owner.kind == core::OwnerKind::process && lease.owner.keeper && state.standing(lease.id).failures == 0 &&
         state.standing(lease.id).ineligible_until <= now;
}

void Oracle::follow_contests(const core::State& state, Time now) {
  if (!config_.quiet || !config_.rules.automatic || config_.keeps_from_swap()) return;
  for (const auto& [uuid, device] : state.devices()) {
    std::vector<const Lease*> members;
    bool waiting = false, alone = true;
    for (const auto& [id, lease] : leases_) {
      const bool waits_here = waits_on(lease, uuid);
      waiting |= waits_here;
      if (waits_here || (is_on(lease, uuid) && has_room(lease))) members.push_back(&lease);
      else alone &= !is_on(lease, uuid);
    }
    if (waiting && members.size() > 1) follow_contest(uuid, members, alone, state, now);
    else contests_.erase(uuid);
  }
}

void Oracle::follow_contest(const std::string& device, const std::vector<const Lease*>& members, bool alone,
                            const core::State& state, Time now) {
  const auto [at, newly] = contests_.try_emplace(device);
  Contest& contest = at->second;
  if (newly) contest.began = contest.at = now;
  count_shares(contest, members, device, now);
  const Reading* reading = known(device, now);
  Bytes all;
  contest.settled = true;
  for (const Lease* lease : members) {
    contest.fair &= lease->tier == members.front()->tier && takes_slices(state, *lease, device, now);
    contest.settled &= !starts_up(*lease, device);
    all += lease->vram;
  }
  const Bytes host = config_.host_memory - config_.rules.ledger_reserve;
  const Bytes place{config_.headroom_known ? host.count / 4 : host.count};
  contest.fair &= alone && reading != nullptr && reading->used_by({}) <= Bytes{} && all <= config_.rules.ledger_limit &&
                  all <= place && members.size() <= 8 && state.snapshot_problem().empty();
  if (!contest.fair) return;
  note_quantum(contest, members, *reading, device);
  if (contest.settled && contest.moving == 0 && state.plan_on(device) == nullptr)
    check_shares(contest, members, device, now);
  check_switching(contest, device, now);
}

void Oracle::count_shares(Contest& contest, const std::vector<const Lease*>& members, const std::string& device,
                          Time now) {
  const Duration since = now - std::exchange(contest.at, now);
  for (const LeaseId id : contest.has) contest.had[id] += since, contest.worked[id] += since;
  contest.moved += contest.moving * since;
  std::optional<Duration> least;
  for (const auto& [id, had] : contest.had) least = std::min(least.value_or(had), had);
  std::map<LeaseId, Duration> had;
  contest.has.clear();
  contest.moving = 0;
  for (const Lease* lease : members) {
    const auto before = contest.had.find(lease->id);
    had[lease->id] = before == contest.had.end() ? least.value_or(Duration{}) : before->second;
    if (waits(*lease)) contest.waited.insert(lease->id);
    const bool counts = !starts_up(*lease, device) || contest.waited.contains(lease->id);
    if (lease->state == LeaseState::active && counts) contest.has.insert(lease->id);
    const bool leaves = lease->state == LeaseState::pausing && !said_at_.contains(lease->id);
    contest.moving += leaves || lease->state == LeaseState::resuming;
    if (leaves || lease->state == LeaseState::resuming) contest.movers.insert(lease->id);
  }
  contest.had = std::move(had);
  const bool away = std::ranges::any_of(members, [](const Lease* lease) { return is_moved(*lease); });
  if (contest.away) contest.longest = std::max(contest.longest, now - *contest.away);
  if (!away) contest.away.reset();
  else if (!contest.away) contest.away = now;
}

// Those who leave had their room together, and so will those have theirs who come: no more of them than fit.
void Oracle::note_quantum(Contest& contest, const std::vector<const Lease*>& members, const Reading& reading,
                          const std::string& device) const {
  struct Takes {
    Bytes bytes;
    Duration out{}, in{};
  };
  std::vector<Takes> each;
  for (const Lease* lease : members) {
    Takes& its = each.emplace_back(Takes{lease->vram});
    for (const PauseMethod method : {PauseMethod::cooperative, PauseMethod::driver}) {
      if (method == PauseMethod::cooperative && !lease->cooperation) continue;
      const auto takes = [&](Move move) {
        return engine_->state().costs().predict(lease->whose(), {device}, method, move, lease->vram).likely;
      };
      its.out = std::max(its.out, takes(Move::pause)), its.in = std::max(its.in, takes(Move::resume));
    }
  }
  Takes most;
  for (std::size_t set = 1; set < std::size_t{1} << each.size(); ++set) {
    Takes all;
    for (std::size_t i = 0; i < each.size(); ++i)
      if ((set >> i & 1) != 0) all.bytes += each[i].bytes, all.out += each[i].out, all.in += each[i].in;
    if (all.bytes > capacity(reading) + config_.rules.headroom) continue;
    most.out = std::max(most.out, all.out), most.in = std::max(most.in, all.in);
  }
  const auto switching = static_cast<double>((most.out + most.in).count());
  const Duration quantum(static_cast<std::int64_t>(switching / std::min(config_.rules.slice_overhead, 0.1)));
  contest.quantum = std::max({contest.quantum, quantum, config_.rules.min_residency.value_or(10s)});
}

// Of those who wait, it has had least, and is the next. Who has had no more than it, and a quantum, may still be there.
void Oracle::check_shares(const Contest& contest, const std::vector<const Lease*>& members, const std::string& device,
                          Time now) {
  const Reading* reading = known(device, now);
  const Lease* next = nullptr;
  for (const Lease* lease : members)
    if (waits(*lease) && (next == nullptr || contest.had.at(lease->id) < contest.had.at(next->id))) next = lease;
  if (next == nullptr || reading == nullptr) return;
  const Duration enough = contest.had.at(next->id) + contest.quantum + 2 * contest.longest + unsure;
  Bytes taken = std::max(next->vram, engine_->state().need(*next, device));  // it may have held more than its size
  for (const Lease* lease : members) {
    const Duration had = contest.had.at(lease->id);
    // For one that has waited long room may be held.
    const bool held = std::ranges::any_of(engine_->state().nominations(),
                                          [lease](const core::Nomination& room) { return room.waiter == lease->id; });
    const bool stays = held || (!waits(*lease) && had <= enough);
    if (lease != next) taken += stays ? std::max(lease->vram, reading->used_by(lease->id)) : keeps(*lease);
  }
  verdict_.expect(taken > capacity(*reading), "unequal-shares", [&] {
    std::string text;
    for (const Lease* lease : members)
      text += fmt::format(" {} ({}, {}) {};", to_string(lease->id), core::to_string(lease->state),
                          format_size(lease->vram), format_duration(contest.had.at(lease->id)));
    return fmt::format("on {} of {} {} waits, and others have had it for longer than a quantum of {} more:{}", device,
                       format_size(capacity(*reading)), to_string(next->id), format_duration(contest.quantum), text);
  });
}

// On the average: what a single switch takes may be more than was expected. Who never moves is none of it.
void Oracle::check_switching(const Contest& contest, const std::string& device, Time now) {
  if (now - contest.began < long_enough) return;
  Duration all = contest.moved;
  for (const LeaseId id : contest.movers)
    if (const auto worked = contest.worked.find(id); worked != contest.worked.end()) all += worked->second;
  const double may = by_chance * config_.rules.slice_overhead * static_cast<double>(all.count());
  const double took = static_cast<double>((contest.moved - 2 * contest.longest).count());
  verdict_.expect(took <= may, "switching-takes-too-much", [&] {
    return fmt::format("on {} turns took {} of {}", device, format_duration(contest.moved), format_duration(all));
  });
}

// Whoever would fit beside those who come in and those who stay is not asked to leave.
void Oracle::check_leaves(const core::PreemptionPlan& plan, const std::string& device, Time now) {
  const auto contest = contests_.find(device);
  const Reading* reading = known(device, now);
  if (contest == contests_.end() || !contest->second.fair || reading == nullptr) return;
  Bytes stays, comes, keep;
  std::optional<Bytes> smallest;  // of those who leave
  for (const auto& [id, had] : contest->second.had) {
    const Lease& lease = leases_.at(id);
    const bool asked = std::ranges::any_of(plan.victims, [id = id](const auto& of) { return of.lease == id; });
    const bool leaves = asked || lease.state == LeaseState::pausing;
    keep += keeps(lease);
    if (leaves) smallest = std::min(smallest.value_or(lease.vram), lease.vram);
    else if (!waits(lease)) stays += std::max(lease.vram, reading->used_by(id));
    else comes += lease.vram;  // at most: all of them
  }
  const Bytes least = smallest.value_or(Bytes{});
  verdict_.expect(!smallest || stays + comes + least + keep > capacity(*reading), "leaves-for-nothing", [&] {
    return fmt::format("on {} of {} somebody with {} leaves for {}, and fits beside {} that stay and {} that come",
                       device, format_size(capacity(*reading)), format_size(least), to_string(plan.preemptor),
                       format_size(stays), format_size(comes));
  });
}

}  // namespace sublet::sim
