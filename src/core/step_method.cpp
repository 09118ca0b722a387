// SPDX-License-Identifier: Apache-2.0
// Programs that yield by themselves: what they say of it, how long they may take, and what of it was true.
#include "core/step_method.h"
#include "core/current_step.h"
#include "core/step_pause.h"
#include "state/methods.h"

#include "state/format.h"
#include "state/host_check.h"

#include <algorithm>
#include <utility>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

// The least time that a program gets to yield, however quick it was before: a loop with uneven steps may reach its safe
// point late.
constexpr Duration least_yield_time = 10s;
// Limit, as a multiple of the first time. Without it a program that answers just before its time is over gets twice as
// long each time.
constexpr int most_yield_times = 4;
// The limit of records by consumer and method; dropped records are learned again soon.
constexpr std::size_t records_kept = 8192;

ReasonArgs args_of(const Cooperation& how) {
  ReasonArgs all;
  switch (how.way) {
    case CooperationWay::poll: all.add("poller", how.process.pid); break;
    case CooperationWay::webhook: all.add("address", how.address); break;
    case CooperationWay::signal: all.add("signalled", how.process.pid); break;
  }
  all.add("residue", how.residue);
  return all;
}

}  // namespace

Result<LeaseId> on(Step& step, const Cooperate& fact) {
  const auto found = find_for(step, fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.ended()) return Error{Code::Stale, name_of(lease) + " has ended", "ask for a new lease"};
  if (lease.cooperation == fact.how) return lease.id;
  if (!fact.how && lease.parking && lease.parking->told)
    return Error{Code::PauseUnsafe,
                 name_of(lease) + " is " + std::string(to_string(lease.state)) +
                     ": only this registration can deliver its resume order",
                 "resume it first (`sublet resume " + to_string(lease.id) + "`)"};
  set_cooperation(step.state, lease, fact.how, step.now);
  if (fact.how) explain(step, lease, ReasonKind::cooperates, args_of(*fact.how));
  else explain(step, lease, ReasonKind::cooperation_withdrawn);
  touch(step, lease);
  return lease.id;
}

Result<LeaseId> on(Step& step, const Grant& fact) {
  const Consumer who{fact.uid, fact.consumer};
  if (step.state.learned.grants.contains(who) == fact.given) return LeaseId{};
  if (fact.given) step.state.learned.grants.insert(who);
  else step.state.learned.grants.erase(who);
  for (auto& [id, lease] : step.state.leases.by_id) {
    const bool waits_for_it =
        lease.unfit && lease.unfit->kind().lasts == ObstacleLasts::until_granted && !lease.ended();
    if (!waits_for_it || lease.whose() != who) continue;
    lease.unfit.reset();
    touch(step, lease);
  }
  step.plan.grants.push_back(fact);
  note(step, fact.given ? "grant_given" : "grant_removed");
  return LeaseId{};
}

// The driver is not asked again about the same program, not even by a later daemon, because the call may destroy the
// program.
void note_unfit(Step& step, Lease& lease, const Obstacle& obstacle) {
  const ObstacleLasts lasts = obstacle.kind().lasts;
  bool& seemed = step.state.leases.runtime.at(lease.id).seemed_unfit;
  if (lasts == ObstacleLasts::moment || lasts == ObstacleLasts::minutes) {
    if (lease.parking->method == PauseMethod::driver) seemed = false;
    return;
  }
  // A slow moment of the driver must not make the program one that cannot be paused: some of those are ended.
  if (lasts == ObstacleLasts::always_if_repeated && !std::exchange(seemed, true)) return;
  lease.unfit = Obstacle{obstacle.code, obstacle.detail};
  touch(step, lease);
}

// A driver that is being installed is back soon. A driver that many tries over minutes did not find is missing. An
// order that ended before it reached the driver says nothing.
ObstacleCode judge_driver(Step& step, ObstacleCode code) {
  constexpr Duration installed_in = 2min;
  auto& missing = step.state.pauses.driver_missing;
  if (code != ObstacleCode::no_driver) {
    if (kind_of(code).blames || kind_of(code).scope == ObstacleScope::machine) missing.reset();
    return code;
  }
  if (!missing || step.now - missing->second > 1min + 2 * step.rules.cooldown) missing.emplace(step.now, step.now);
  missing->second = step.now;
  return step.now - missing->first >= installed_in ? ObstacleCode::driver_missing : code;
}

Duration yield_time(const Step& step, const Lease& lease) {
  const auto before =
      step.state.learned.costs.entries().find({lease.whose(), "", PauseMethod::cooperative, Move::pause});
  if (before == step.state.learned.costs.entries().end()) return step.rules.yield_timeout;
  // The longest of so few samples stands for the 99th percentile. The freed bytes say little about the time in which a
  // program gets to a place where it can stop.
  Duration learned = std::min(least_yield_time, step.rules.yield_timeout);
  for (const MoveSample& sample : before->second.curve.samples()) learned = std::max(learned, 2 * sample.took);
  learned = std::min(learned, most_yield_times * step.rules.yield_timeout);
  // A consumer whose last attempt failed gets the whole time once more.
  const MethodRecord* record = record_of(step.state, lease.whose(), PauseMethod::cooperative);
  const bool failed = record != nullptr && record->tries > 0 && (record->outcomes & 1) == 0;
  return failed ? std::max(learned, step.rules.yield_timeout) : learned;
}

void remember_pause(Step& step, const Lease& lease, PauseMethod method, bool verified) {
  const std::pair who(lease.whose(), method);
  if (!step.state.learned.records.contains(who) && step.state.learned.records.size() >= records_kept) {
    const auto first = step.state.learned.records.begin();
    step.plan.records.push_back({first->first.first, first->first.second, {}});
    step.state.learned.records.erase(first);
  }
  MethodRecord& record = step.state.learned.records[who];
  record.outcomes = record.outcomes << 1 | (verified ? 1U : 0U);
  record.tries = std::min<int>(record.tries + 1, pauses_kept);
  step.plan.records.push_back({who.first, who.second, record});
}

// For a pause that its owner requested. Not after a while: the owner may not want it any more.
bool try_next(Step& step, Lease& lease, Parking parking, const HostMemory& host) {
  const PauseMethod next = *std::exchange(attempt_in(step, lease).next, std::nullopt);
  const auto methods = pause_methods_of(step.state, lease);
  if (std::find(methods.begin(), methods.end(), next) == methods.end()) return false;
  set_parking(step.state, lease, std::nullopt, LeaseState::active);
  if (check_host(step.state, step.rules, lease, host)) {
    parking.told = false;
    note(step, "next_method");
    ask_to_yield(step, lease, next, std::move(parking));
    return true;
  }
  set_parking(step.state, lease, std::move(parking), LeaseState::resuming);
  return false;
}

// -------------------------------------------------------------------------------- paused, and holding again

// The bytes are charged to the paused lease, so that nothing is granted against them. Two readings in a row are no
// error of the list.
void note_relapses(Step& step, std::set<LeaseId> holding) {
  for (const LeaseId id : step.state.pauses.relapsing) {
    if (holding.contains(id)) continue;
    if (const auto runtime = step.state.leases.runtime.find(id); runtime != step.state.leases.runtime.end())
      runtime->second.relapsed = false;
  }
  for (const LeaseId id : holding) {
    Lease& lease = *find(step, id);
    if (lease.state != LeaseState::paused || !step.state.pauses.relapsing.contains(id)) continue;
    if (std::exchange(step.state.leases.runtime.at(id).relapsed, true)) continue;
    remember_pause(step, lease, lease.parking->method, false);
    explain(step, lease, ReasonKind::allocated_while_paused,
            args("holds", use_of(step.state, id).used, "residue", lease.parking->residue));
  }
  step.state.pauses.relapsing = std::move(holding);
}

}  // namespace sublet::core
