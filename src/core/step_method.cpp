// SPDX-License-Identifier: Apache-2.0
// Programs that yield by themselves: what they say of it, how long they may take, and what of it was true.
#include "core/methods.h"
#include "core/stepper.h"

#include "core/format.h"

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

Result<LeaseId> Stepper::on(const Cooperate& fact) {
  const auto found = find_for(fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.ended()) return Error{Code::Stale, name_of(lease) + " has ended", "ask for a new lease"};
  if (lease.cooperation == fact.how) return lease.id;
  if (!fact.how && lease.parking && lease.parking->told)
    return Error{Code::PauseUnsafe,
                 name_of(lease) + " is " + std::string(to_string(lease.state)) +
                     ": only this registration can deliver its resume order",
                 "resume it first (`sublet resume " + to_string(lease.id) + "`)"};
  state_.set_cooperation(lease, fact.how, now_);
  if (fact.how) explain(lease, ReasonKind::cooperates, args_of(*fact.how));
  else explain(lease, ReasonKind::cooperation_withdrawn);
  touch(lease);
  return lease.id;
}

Result<LeaseId> Stepper::on(const Grant& fact) {
  const Consumer who{fact.uid, fact.consumer};
  if (state_.grants_.contains(who) == fact.given) return LeaseId{};
  if (fact.given) state_.grants_.insert(who);
  else state_.grants_.erase(who);
  for (auto& [id, lease] : state_.leases_) {
    const bool waits_for_it = lease.unfit && lease.unfit->kind == Unfit::unvouched && !lease.ended();
    if (!waits_for_it || lease.whose() != who) continue;
    lease.unfit.reset();
    touch(lease);
  }
  plan_.grants.push_back(fact);
  note(fact.given ? "grant_given" : "grant_removed");
  return LeaseId{};
}

Status Stepper::check_swap(const Lease& lease, const HostMemory& host) const {
  if (host.may_swap && !rules_.allow_swap)
    return Error{Code::PauseUnsafe,
                 name_of(lease) +
                     " cannot be paused: the kernel may swap its parked memory out, and the resume would "
                     "then take minutes",
                 "turn swap off for it (memory.swap.max = 0 in its cgroup), or set ledger.allow_swap = true"};
  return {};
}

// Without an actor it may only be so for a moment.
bool Stepper::swaps_for_good(const Lease& lease, const HostMemory& host) const {
  return !host.keeper_away && !check_swap(lease, host);
}

// The lease may hold more than at the pause order. It allocated before it was locked, or its processes are in other
// cgroups than those that were examined. Bytes beyond its entry are entered, and the bytes of each process are noted
// for its resume. A pause that does not fit is not begun.
Result<LeaseId> Stepper::on(const MeasuredWhileLocked& fact) {
  Lease* lease = find(fact.lease);
  const bool on_top = lease != nullptr && lease->state == LeaseState::paused;
  // Bytes that are parked on top were weighed at the order. A process that came since may be in a cgroup that is not
  // kept from swap.
  if (on_top) {
    if (const Status may = check_swap(*lease, fact.host); !may) return may.error();
    return lease->id;
  }
  if (lease == nullptr || lease->state != LeaseState::pausing)  // any more: it comes back, by a store read anew
    return not_found(to_string(fact.lease) + " has no yield order");
  const Bytes entered = lease->parking->host_bytes;
  state_.enter(*lease, -1);  // what is there beside it
  const Status takes = check_host(*lease, fact.host);
  state_.enter(*lease, 1);
  if (!takes) return takes.error();
  const Bytes held = held_by(state_, *lease);
  Parking parking = *lease->parking;
  parking.host_bytes = std::max(entered, held);
  state_.note_asked(*lease, parking, rules_, now_);
  if (parking == *lease->parking) return lease->id;
  if (held > entered) explain(*lease, ReasonKind::pausing_holds_more, args("bytes", held, "more", held - entered));
  state_.set_parking(*lease, std::move(parking), LeaseState::pausing);
  touch(*lease);
  return lease->id;
}

// The driver is not asked again about the same program, not even by a later daemon, because the call may destroy the
// program. A missing consent of the owner is no failure of the method.
void Stepper::note_unfit(Lease& lease, const Parked& fact) {
  if (!fact.unfit) {
    if (lease.parking->method == PauseMethod::driver) state_.runtime_.at(lease.id).seemed_unfit = false;
    return;
  }
  // A pause of nothing but a slow moment of the driver must not make it one that cannot be paused: of those some are
  // ended.
  if (fact.may_be_by_chance && !std::exchange(state_.runtime_.at(lease.id).seemed_unfit, true)) return;
  lease.unfit = UnfitFor{*fact.unfit, fact.detail};
  touch(lease);
}

Duration Stepper::yield_time(const Lease& lease) const {
  const auto before = state_.costs_.entries().find({lease.whose(), "", PauseMethod::cooperative, Move::pause});
  if (before == state_.costs_.entries().end()) return rules_.yield_timeout;
  // The longest of so few samples stands for the 99th percentile. The freed bytes say little about the time in which a
  // program gets to a place where it can stop.
  Duration learned = std::min(least_yield_time, rules_.yield_timeout);
  for (const MoveSample& sample : before->second.curve.samples()) learned = std::max(learned, 2 * sample.took);
  learned = std::min(learned, most_yield_times * rules_.yield_timeout);
  // A consumer whose last attempt failed gets the whole time once more.
  const MethodRecord* record = state_.record(lease.whose(), PauseMethod::cooperative);
  const bool failed = record != nullptr && record->tries > 0 && (record->outcomes & 1) == 0;
  return failed ? std::max(learned, rules_.yield_timeout) : learned;
}

void Stepper::remember_pause(const Lease& lease, PauseMethod method, bool verified) {
  const std::pair who(lease.whose(), method);
  if (!state_.records_.contains(who) && state_.records_.size() >= records_kept) {
    const auto first = state_.records_.begin();
    plan_.records.push_back({first->first.first, first->first.second, {}});
    state_.records_.erase(first);
  }
  MethodRecord& record = state_.records_[who];
  record.outcomes = record.outcomes << 1 | (verified ? 1U : 0U);
  record.tries = std::min<int>(record.tries + 1, pauses_kept);
  plan_.records.push_back({who.first, who.second, record});
}

// On its owner's word. Not after a while: whoever wanted the pause then may want it no more.
bool Stepper::try_next(Lease& lease, Parking parking, const HostMemory& host) {
  const PauseMethod next = *std::exchange(state_.runtime_.at(lease.id).next, std::nullopt);
  const auto methods = pause_methods_of(state_, lease);
  if (std::find(methods.begin(), methods.end(), next) == methods.end()) return false;
  state_.set_parking(lease, std::nullopt, LeaseState::active);
  if (check_host(lease, host)) {
    parking.told = false;
    note("next_method");
    ask_to_yield(lease, next, std::move(parking));
    return true;
  }
  state_.set_parking(lease, std::move(parking), LeaseState::resuming);
  return false;
}

// -------------------------------------------------------------------------------- paused, and holding again

// The bytes are charged to the paused lease, so that nothing is granted against them. Two readings in a row are no
// error of the list.
void Stepper::note_relapses(std::set<LeaseId> holding) {
  for (const LeaseId id : state_.relapsing_) {
    if (holding.contains(id)) continue;
    if (const auto runtime = state_.runtime_.find(id); runtime != state_.runtime_.end())
      runtime->second.relapsed = false;
  }
  for (const LeaseId id : holding) {
    Lease& lease = *find(id);
    if (lease.state != LeaseState::paused || !state_.relapsing_.contains(id)) continue;
    if (std::exchange(state_.runtime_.at(id).relapsed, true)) continue;
    remember_pause(lease, lease.parking->method, false);
    explain(lease, ReasonKind::allocated_while_paused,
            args("holds", state_.use(id).used, "residue", lease.parking->residue));
    state_.runtime_.at(id).top_at = now_ + rules_.cooldown;
    plan_.actions.emplace_back(PauseAgain{id});
  }
  state_.relapsing_ = std::move(holding);
}

// Never while an order is out: what comes of it says when to look again.
Time Stepper::top_due(LeaseId id) const {
  const Lease* lease = state_.find(id);
  if (lease == nullptr || lease->state != LeaseState::paused) return Time::never();
  const State::LeaseRuntime& runtime = state_.runtime_.at(id);
  return runtime.relapsed && !runtime.on_top ? runtime.top_at : Time::never();
}

// These paused leases still hold the bytes. The obstacle may have passed, and the order may have been lost: nobody
// reports either.
void Stepper::pause_relapsed_again() {
  for (const LeaseId id : state_.relapsing_) {
    if (top_due(id) > now_) continue;
    const Lease& lease = *find(id);
    Time& next = state_.runtime_.at(id).top_at;
    next = now_ + barred_for;  // whoever lets it be parked by another method need not say so
    for (const PauseMethod method : pause_methods_of(state_, lease)) {
      if (method == lease.parking->method || method == PauseMethod::cooperative) continue;
      if (const Barred* bar = state_.barred(id, method, now_)) {
        next = bar->until;
        continue;
      }
      next = now_ + rules_.cooldown;
      plan_.actions.emplace_back(PauseAgain{id});
      break;
    }
  }
}

// As a pause is tried again that failed. Where nobody knows what came of it, some may be locked or parked: first they
// have to come back.
void Stepper::try_top_later(const Lease& lease, const Parked& failed) {
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  if (!failed.undone) runtime.top_at = Time::never();
  else if (!failed.hindrance)
    runtime.top_at = now_ + rules_.cooldown * (1 << std::min(runtime.tops_failed++, most_doublings));
  else runtime.top_at = now_ + (*failed.hindrance == Hindrance::passing ? rules_.cooldown : barred_for);
}

// Its program stays told to yield; what it took all the same is parked by the next method. It stays paused meanwhile,
// whatever comes of that: its room is not its own, so nothing may be undone that would need it.
Result<LeaseId> Stepper::pause_on_top(Lease& lease, const HostMemory& host) {
  if (state_.runtime_.at(lease.id).on_top) return lease.id;
  for (const PauseMethod method : pause_methods_of(state_, lease)) {
    if (method == lease.parking->method || method == PauseMethod::cooperative) continue;
    State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
    if (const Status takes = check_host(lease, host); !takes) {
      runtime.top_at = now_ + (swaps_for_good(lease, host) ? barred_for : rules_.cooldown);
      return takes.error();
    }
    const Bytes held = held_by(state_, lease);
    Parking parking = *lease.parking;
    // After an earlier attempt without a result, the entry from before that attempt stays.
    if (!parking.before_top) parking.before_top = Entered{parking.method, parking.host_bytes, parking.measured};
    runtime.on_top = method;
    state_.note_asked_on_top(lease, parking);
    parking.host_bytes = parking.before_top->bytes + held;
    parking.measured = false;
    explain(lease, ReasonKind::parking_again,
            args("method", to_string(method), "bytes", held, "devices", device_names(state_, lease.devices)));
    state_.set_parking(lease, std::move(parking), LeaseState::paused);
    const Duration at_most = driver_time(lease, Move::pause);
    plan_.actions.emplace_back(Park{lease.id, method, at_most, given_up_after * at_most});
    touch(lease);
    return lease.id;
  }
  return lease.id;
}

// Bytes that are parked, or may be, come back with the rest on resume: by then no lease counts on the memory. If none
// are, the attempt leaves no trace.
Result<LeaseId> Stepper::parked_on_top(Lease& lease, const Parked& fact) {
  const PauseMethod method = *std::exchange(state_.runtime_.at(lease.id).on_top, std::nullopt);
  note_unfit(lease, fact);
  if (fact.unfit != Unfit::unvouched && !fact.hindrance) remember_pause(lease, method, fact.done);
  if (!fact.done) {
    explain(lease, ReasonKind::parking_again_failed, args("detail", fact.detail));
    if (fact.undone && lease.parking->before_top) forget_top(lease);
    try_top_later(lease, fact);
    return lease.id;
  }
  state_.runtime_.at(lease.id).tops_failed = 0;
  Parking parking = *lease.parking;
  const auto before = std::exchange(parking.before_top, std::nullopt);
  State::note_parked_on_top(parking);
  if (fact.bytes && before) {
    parking.host_bytes = before->bytes + *fact.bytes;
    parking.measured = true;
  }
  state_.set_parking(lease, std::move(parking), LeaseState::paused);
  note("parked_again");
  touch(lease);
  return lease.id;
}

// Nobody of it is locked or parked.
void Stepper::forget_top(Lease& lease) {
  Parking parking = *lease.parking;
  const Entered before = *std::exchange(parking.before_top, std::nullopt);
  parking.method = before.method;
  parking.host_bytes = before.bytes;
  parking.measured = before.measured;
  if (parking.locked_processes) parking.locked_processes->clear();
  for (HeldWhenPaused& its : parking.held_when_paused) its.on_top = its.tops = {}, its.of.clear();
  state_.set_parking(lease, std::move(parking), LeaseState::paused);
  note("parking_again_dropped");
  touch(lease);
}

// The results are unknown, because the daemon was restarted or a helper ended. Bytes that are not on the devices any
// more were parked, and the ledger counts them. The rest may be freed, or parked after all.
void Stepper::recount_tops(Time began) {
  const std::vector<LeaseId> away(state_.away_.begin(), state_.away_.end());
  for (const LeaseId id : away) {
    Lease& lease = *find(id);
    const auto& before = lease.parking->before_top;
    if (!before || lease.state != LeaseState::paused || state_.runtime_.at(id).on_top || !told(lease, began)) continue;
    Parking parking = *lease.parking;
    parking.host_bytes = before->bytes + state_.gone_since_top(lease);
    parking.measured = before->measured;
    if (parking == *lease.parking) continue;
    note("parked_again_measured");
    state_.set_parking(lease, std::move(parking), LeaseState::paused);
    touch(lease);
  }
}

}  // namespace sublet::core
