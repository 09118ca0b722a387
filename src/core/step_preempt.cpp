// SPDX-License-Identifier: Apache-2.0
// Preemption plans: victims are paused for a preemptor, the cheapest first and one after the other, and free memory
// there is reserved for it. Plans are not stored but made anew after each change. A plan that cannot be completed any
// more ends by itself, and its victims come back by their place in the queue.
#include "base/mutants.h"
#include "core/format.h"
#include "core/ledger_set.h"
#include "core/methods.h"
#include "core/nominations.h"
#include "core/prospects.h"
#include "core/stepper.h"
#include "core/victims.h"

#include <algorithm>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

// A cancelled plan may let other leases start, and these may change the other plans. More often that is put off to the
// next step.
constexpr int rounds = 4;
// If more devices than this changed, all devices are examined anew, which takes no longer.
constexpr std::size_t few_changes = 8;
// If possible victims are on more devices than this, only the first of all waiters are preemptors: each step would take
// too long.
constexpr std::size_t most_spread = 64;
constexpr Duration settling_pause = 1s;

}  // namespace

// -------------------------------------------------------------------------------- what is to be done

void Stepper::preempt() {
  for (int round = 0; round < rounds && room_stale(); ++round) {
    previous_plans_ = std::exchange(state_.plans_, {});
    for (PreemptionPlan& preemption : previous_plans_) pass_on(preemption);
    state_.slices_.clear();
    state_.room_look_at_ = Time::never();
    announce_slices_on_several();
    for (const LeaseId preemptor : preemptors_in_order()) look_for_room(*find(preemptor));
    leave_slice_groups();
    bool freed = give_up();
    const std::vector<PreemptionPlan> plans = state_.plans_;
    for (const PreemptionPlan& preemption : plans) freed |= advance(preemption);
    if (!freed) break;
    grant_waiting();
  }
}

// Once the lease for which a slice began has entered, the plan goes on for its beneficiaries.
void Stepper::pass_on(PreemptionPlan& preemption) const {
  const Lease* preemptor = state_.find(preemption.preemptor);
  const bool came_in = preemptor != nullptr && preemptor->reserves() && !state_.queue_.contains(preemption.preemptor);
  if (!preemption.by_slice || !preemption.started || !came_in) return;
  std::erase_if(preemption.beneficiaries, [this](LeaseId id) { return !state_.queue_.contains(id); });
  if (preemption.beneficiaries.empty()) return;
  preemption.preemptor = preemption.beneficiaries.front();
  preemption.beneficiaries.erase(preemption.beneficiaries.begin());
}

// Preemptors in the order of the queue. A plan that began by request or slice goes on before preemptors begin that
// would not go ahead of it. Otherwise its victims would be paused for those preemptors, or for their own return.
std::vector<LeaseId> Stepper::preemptors_in_order() const {
  std::vector<const PreemptionPlan*> gone_on_with;
  for (const PreemptionPlan& preemption : previous_plans_)
    if (is_gone_on_with(preemption)) gone_on_with.push_back(&preemption);
  std::vector<LeaseId> found;
  std::set<LeaseId> known;
  const auto add = [&](LeaseId id) {
    if (known.insert(id).second) found.push_back(id);
  };
  for (const Preemptor& preemptor : state_.preemptors_.in_order()) {
    for (const PreemptionPlan* preemption : gone_on_with)
      if (!goes_ahead(preemptor.key.lease, *preemption)) add(preemption->preemptor);
    add(preemptor.key.lease);
  }
  return found;
}

// Before a victim was asked, its choice of victims does not matter: that depends on the preemptors ahead of it.
bool Stepper::goes_ahead(LeaseId preemptor, const PreemptionPlan& preemption) const {
  const bool word = preemption.cause != Cause::request && state_.requested_.contains(preemptor);
  return word || state_.find(preemptor)->tier >
                     (preemption.started ? preemption.tier : state_.find(preemption.preemptor)->tier);
}

bool Stepper::is_gone_on_with(const PreemptionPlan& preemption) const {
  if (preemption.cause == Cause::request) return state_.requested_.contains(preemption.preemptor);
  return preemption.by_slice && state_.preemptors_.contains(preemption.preemptor);
}

// The devices with memory reserved for a lease ahead of this waiter to which it would not give the memory back in time.
// No victim is paused there for it, except by request.
std::vector<std::string> Stepper::barred_from(const Lease& waiter) const {
  const QueueKey* key = state_.queue_.key(waiter.id);
  std::vector<std::string> devices;
  const bool leaves_again = waiter.pausable != Pausable::no;
  if (leaves_again || key == nullptr) return devices;
  const Nominations held(state_, rules_, now_);
  for (const Nominations::Entry& entry : held.entries())
    if (entry.key.before(*key)) devices.insert(devices.end(), entry.room.devices.begin(), entry.room.devices.end());
  return devices;
}

// True if something changed that matters to plans: a device, the first waiters, or the time to look again.
bool Stepper::room_stale() {
  std::vector<Preemptor> query = list_preemptors();
  state_.reindex(rules_, now_);
  const bool time = state_.room_look_at_ <= now_;
  if (time) state_.room_look_at_ = Time::never();
  const bool others = query != state_.preemptors_.in_order();
  const bool everything = std::exchange(state_.room_stale_, false) || time || others;
  const std::vector<std::string> changed = std::exchange(state_.room_changed_, {});
  if (!everything && !change_matters(changed)) return false;
  if (others) {
    std::vector<std::vector<std::string>> devices;
    for (const Preemptor& preemptor : query) {
      const Lease& lease = *find(preemptor.key.lease);
      if (lease.waits_in_place()) devices.push_back(lease.devices);
      else if (!lease.wanted_device.empty()) devices.push_back({lease.wanted_device});
      else devices.emplace_back();
    }
    state_.preemptors_ = Preemptors(std::move(query), devices);
  }
  if (state_.preemptors_.empty()) return !state_.plans_.empty() || !state_.slice_groups_.empty();
  return true;
}

// Without a plan in progress and without one found before, only the devices that changed can give a plan now.
bool Stepper::change_matters(const std::vector<std::string>& changed) const {
  const bool in_progress = !state_.plans_.empty() || !state_.slices_.empty() || contested();
  if (in_progress || !state_.requested_.empty() || changed.size() > few_changes) return !changed.empty();
  return std::any_of(changed.begin(), changed.end(), [this](const std::string& uuid) {
    const Device* device = state_.find_device(uuid);
    return device != nullptr && std::ranges::any_of(state_.preemptors_.in_order(), [&](const Preemptor& preemptor) {
             return might_make_room(state_, rules_, *state_.find(preemptor.key.lease), *device, now_);
           });
  });
}

// The preemptors: the first waiters, leases that wait to resume, and leases with a preemption request, wherever they
// stand.
std::vector<Preemptor> Stepper::list_preemptors() {
  std::vector<QueueKey> by_rule;
  if (rules_.automatic || mutant(Mutant::nothing_is_manual)) {
    add_first_waiters(by_rule);
    add_parked(by_rule);
  }
  std::vector<Preemptor> all;
  all.reserve(by_rule.size() + state_.requested_.size());
  for (const QueueKey& key : by_rule) all.push_back({key, true});
  std::erase_if(state_.requested_, [&](LeaseId id) {
    const QueueKey* key = state_.queue_.key(id);
    if (key != nullptr) all.push_back({*key, false});
    else if (Lease* lease = find(id)) keep_request(*lease);
    return key == nullptr;
  });
  std::sort(all.begin(), all.end(), [](const Preemptor& a, const Preemptor& b) {
    return a.key.lease == b.key.lease ? a.by_rule && !b.by_rule : a.key.before(b.key);
  });
  const auto same = [](const Preemptor& a, const Preemptor& b) { return a.key.lease == b.key.lease; };
  all.erase(std::unique(all.begin(), all.end(), same), all.end());
  return all;
}

// Adds the first waiters for each device, and for each number of devices: waiters for other things keep none of them
// out.
void Stepper::add_first_waiters(std::vector<QueueKey>& keys) const {
  const Queue& queue = state_.queue_;
  queue.all().first(preemptors, keys);
  std::size_t devices = 0;
  for (const auto& where : state_.where_) devices += where.size();
  if (queue.size() <= preemptors || devices > most_spread) return;
  for (const auto& [count, tree] : queue.any()) tree.first(preemptors, keys);
  queue.sets().first(preemptors, keys);
  for (const auto& where : state_.where_)
    for (const std::string& device : where)
      if (const QueueTree* tree = queue.named(device)) tree->first(preemptors, keys);
}

void Stepper::add_parked(std::vector<QueueKey>& keys) const {
  const Queue& queue = state_.queue_;
  for (const LeaseId id : state_.away_) {
    const QueueKey* key = queue.key(id);
    if (key == nullptr) continue;
    const std::vector<std::string>& devices = state_.find(id)->devices;
    const QueueTree& tree = devices.size() > 1 ? queue.sets() : *queue.named(devices.front());
    if (state_.away_.size() <= parked_preemptors || tree.before(*key) < parked_preemptors) keys.push_back(*key);
  }
}

// Cancels the plans of preemptors that have no need of them any more, or no hope: their memory is free for all again.
bool Stepper::give_up() {
  bool freed = false;
  for (const PreemptionPlan& old : previous_plans_) {
    for (const std::string& device : old.devices) {
      if (const PreemptionPlan* now = state_.plan_on(device);
          now != nullptr && now->preemptor == old.preemptor && now->tier >= old.tier)
        continue;
      if (!mutant(Mutant::kept_room_stays_kept)) state_.opened_.push_back(device);
      freed = true;
    }
  }
  return freed;
}

void Stepper::look_for_room(const Lease& waiter) {
  if (waits_for_reading(waiter)) return;
  const std::optional<PreemptionRequest>& preemption_request = waiter.preemption_request;
  if (!preemption_request && !state_.somebody_might_yield(waiter.tier)) return note_obstacles(waiter);
  const PreemptionQuery query{waiter, preemption_request, /*lists_all=*/false};
  const VictimPlan plan = plan_on_or_elsewhere(query);
  // The memory comes by itself, or is there. Memory that other leases left for the preemptor stays reserved for it, or
  // they would take it back.
  const bool settles = std::ranges::any_of(
      plan.devices, [this](const std::string& uuid) { return state_.devices_.at(uuid).settling > Bytes{}; });
  const bool for_it =
      plan.in_progress || (settles && (started_for(waiter.id) != nullptr ||
                                       (preemption_request && yields_on_its_request(waiter.id, plan.devices))));
  if (plan.found && plan.victims.empty() && (!for_it || is_free(waiter, plan.devices))) return;
  const std::vector<std::string> barred = barred_from(waiter);
  const bool may =
      query.cause() == Cause::request ||
      std::find_first_of(plan.devices.begin(), plan.devices.end(), barred.begin(), barred.end()) == plan.devices.end();
  if (plan.found && plan.victims.empty() && others_come_in_with(waiter) && continue_slice(waiter)) return;
  if (plan.found && may) {
    // The slice goes on while its victims are being paused.
    const auto old = std::ranges::find_if(previous_plans_, [&waiter](const PreemptionPlan& preemption) {
      return preemption.preemptor == waiter.id && preemption.by_slice;
    });
    const bool by_slice = !preemption_request && old != previous_plans_.end();
    const Cause cause = by_slice && plan.victims.empty() ? Cause::slice : query.cause();
    begin_plan({waiter.id, keeps_out(query, plan), cause, by_slice, /*started=*/false, plan.devices, plan.victims,
                by_slice && old->devices == plan.devices ? old->beneficiaries : std::vector<LeaseId>()});
    return;
  }
  note_obstacles(waiter);
  look_again_at(plan.again);
  for (const Ineligible& ineligible : plan.ineligible) look_again_at(ineligible.until);
  // A request whose victims cannot be paused any more takes no right away.
  if (may_ask(state_, rules_, waiter)) wait_for_slice(waiter, barred);
}

// No decision is made while the last reading of the plan's devices is too old; the plan so far is kept.
bool Stepper::waits_for_reading(const Lease& waiter) {
  const PreemptionPlan* old = started_for(waiter.id);
  if (old == nullptr || !state_.queue_.contains(waiter.id)) return false;
  const auto is_late = [this](const std::string& uuid) {
    const Device* device = state_.find_device(uuid);
    return device != nullptr && !state_.known(*device, rules_, now_) && device->problem.empty() &&
           !State::given_up(*device, rules_, now_);
  };
  if (std::ranges::none_of(old->devices, is_late)) return false;
  PreemptionPlan kept = *old;
  kept.victims.clear();
  return begin_plan(std::move(kept));
}

// The memory on its way is enough for the waiter, and not for the beneficiaries of the same time slice.
bool Stepper::others_come_in_with(const Lease& waiter) const {
  const PreemptionPlan* old = started_for(waiter.id);
  if (old == nullptr || !old->by_slice || old->beneficiaries.empty()) return false;
  return std::ranges::any_of(old->devices, [&](const std::string& uuid) {
    Bytes need = state_.need(waiter, uuid);
    for (const LeaseId id : old->beneficiaries)
      if (const Lease* other = state_.find(id); other != nullptr && state_.queue_.contains(id))
        need += state_.need(*other, uuid);
    const auto device = state_.devices_.find(uuid);
    return device != state_.devices_.end() && state_.known(device->second, rules_, now_) &&
           state_.effective_free(device->second, rules_, now_) + device->second.settling +
                   being_yielded(state_, device->second) <
               need;
  });
}

// A lease has one plan at a time.
const PreemptionPlan* Stepper::started_for(LeaseId preemptor) const {
  const auto found = std::ranges::find_if(previous_plans_, [preemptor](const PreemptionPlan& preemption) {
    return preemption.preemptor == preemptor && preemption.started;
  });
  return found == previous_plans_.end() ? nullptr : &*found;
}

// If victims were paused for it already, the plan goes on there, whatever another device would cost by now. Otherwise
// their pause would be for nothing.
VictimPlan Stepper::plan_on_or_elsewhere(PreemptionQuery query) const {
  if (const PreemptionPlan* before = started_for(query.lease.id)) {
    query.on = before->devices;
    if (VictimPlan there = plan_victims(state_, rules_, query, now_); there.found) return there;
    query.on.clear();
  }
  return plan_victims(state_, rules_, query, now_);
}

// True if the memory is free. If the waiter does not get it, it is reserved for another lease, and no victim there is
// paused for this waiter.
bool Stepper::is_free(const Lease& waiter, const std::vector<std::string>& devices) const {
  return std::all_of(devices.begin(), devices.end(), [&](const std::string& uuid) {
    const Device& device = state_.devices_.at(uuid);
    return state_.known(device, rules_, now_) &&
           state_.effective_free(device, rules_, now_) >= state_.need(waiter, uuid);
  });
}

void Stepper::look_again_at(Time at) {
  if (at > now_) state_.room_look_at_ = std::min(state_.room_look_at_, at);
}

bool Stepper::begin_plan(PreemptionPlan preemption) {
  for (const std::string& device : preemption.devices)
    if (state_.plan_on(device) != nullptr) return false;  // of one that stands before it
  const PreemptionPlan* old = started_for(preemption.preemptor);
  preemption.started =
      old != nullptr &&
      (old->by_slice ? preemption.by_slice : std::ranges::is_permutation(old->devices, preemption.devices));
  if (preemption.cause == Cause::request)
    preemption.started |= yields_on_its_request(preemption.preemptor, preemption.devices);
  state_.plans_.push_back(std::move(preemption));
  return true;
}

// -------------------------------------------------------------------------------- doing it

// Asks one victim after the other: the next when the one before is paused, or could not be. True: memory may be free at
// once.
bool Stepper::advance(const PreemptionPlan& preemption) {
  if (preemption.victims.empty() || somebody_yields(preemption.devices)) return false;
  // A victim whose method has just failed is asked by its next method before any other victim.
  const auto again =
      std::ranges::find_if(preemption.victims, [this](const Victim& its) { return undone_.contains(its.lease); });
  const Victim& first = again == preemption.victims.end() ? preemption.victims.front() : *again;
  Lease& victim = *find(first.lease);
  if (somebody_yields(victim.devices)) return false;
  if (victim.ended()) return false;  // for another preemptor, on another of its devices
  if (first.ends && !swap_may_be_prevented(victim)) {
    note_started(preemption);
    end_spot(victim, preemption);
    return true;
  }
  if (undone_.contains(victim.id)) return ask_by_next(victim, preemption), false;
  state_.runtime_.at(victim.id).weighed = true;
  plan_.actions.emplace_back(WeighHost{victim.id});
  return false;
}

// The finding that swap cannot be prevented is some time old, and the other processes of the cgroup may be gone. A
// lease that is to be ended for swap is weighed once more.
bool Stepper::swap_may_be_prevented(const Lease& victim) const {
  const std::optional<Barred>& barred = state_.runtime_.at(victim.id).barred;
  return barred && barred->by == Hindrance::swap && barred->until < now_ + barred_for;
}

// The earlier method was undone a moment ago, and host memory was reported with that.
void Stepper::ask_by_next(Lease& victim, const PreemptionPlan& preemption) {
  const auto undone = undone_.find(victim.id);
  State::LeaseRuntime& runtime = state_.runtime_.at(victim.id);
  const auto methods = pause_methods_of(state_, victim);
  const bool has = runtime.next && std::find(methods.begin(), methods.end(), *runtime.next) != methods.end();
  if (!has || !check_host(victim, undone->second.host)) return;
  note_started(preemption);
  Parking parking = std::move(undone->second.parking);
  undone_.erase(undone);
  parking.told = false;
  parking.cause = cause_of(preemption, victim);
  runtime.yields_for = preemption.preemptor;
  note("next_method");
  ask_to_yield(victim, *runtime.next, std::move(parking));
}

// True if a lease on these devices is pausing or paused for the preemptor. Such leases keep the request alive while no
// more victims are found.
bool Stepper::yields_on_its_request(LeaseId preemptor, const std::vector<std::string>& devices) const {
  return std::ranges::any_of(devices, [&](const std::string& uuid) {
    return std::ranges::any_of(state_.devices_.at(uuid).leases, [&](LeaseId id) {
      const Lease& lease = *state_.find(id);
      const bool away = lease.state == LeaseState::pausing || lease.state == LeaseState::paused;
      return away && state_.runtime_.at(id).yields_for == preemptor;
    });
  });
}

void Stepper::note_started(const PreemptionPlan& preemption) {
  for (PreemptionPlan& its : state_.plans_) its.started |= its.preemptor == preemption.preemptor;
}

// Victims whose memory is not wanted any more, or that have it no more, are settled.
void Stepper::settle_undone() {
  for (const auto& [id, undone] : std::exchange(undone_, {}))
    if (Lease* lease = find(id); lease != nullptr && lease->state == LeaseState::active)
      runs_again(*lease, undone.parking);
}

// Host memory is known only now, and a moment has passed: the plan is examined again.
Result<LeaseId> Stepper::on(const HostWeighed& fact) {
  Lease* victim = find(fact.lease);
  if (victim == nullptr) return not_found(to_string(fact.lease) + " is not a live lease");
  state_.runtime_.at(victim->id).weighed = false;
  // The driver may have returned meanwhile, for example for a victim that was passed over: the result is examined
  // first.
  const auto preemption = std::find_if(state_.plans_.begin(), state_.plans_.end(), [&](const PreemptionPlan& of) {
    return !of.victims.empty() && of.victims.front().lease == victim->id && !somebody_yields(of.devices);
  });
  if (preemption == state_.plans_.end() || somebody_yields(victim->devices)) {
    // The plan has changed meanwhile. The next look is later, so that two leases are not weighed in turn for ever.
    look_again_at(now_ + look_interval);
    return victim->id;
  }
  state_.room_stale_ = true;
  const bool ends = preemption->victims.front().ends;
  std::optional<Barred>& barred = state_.runtime_.at(victim->id).barred;
  if (ends && barred && barred->by == Hindrance::swap) barred.reset();
  if (swaps_for_good(*victim, fact.host))
    bar(*victim, Hindrance::swap, "the kernel may swap its parked memory out");
  if (ends) return victim->id;
  if (const Status may = check_pause(*victim, fact.host); !may) {
    leave_alone(*victim, {LeftAlone::Ground::refused, ReasonKind::note, args("text", may.error().detail)});
    return victim->id;
  }
  // The first victim is asked only if host memory takes all of them. The cgroups of the other victims are not examined
  // yet.
  HostMemory host = fact.host;
  host.headroom.reset();
  const std::string beyond = beyond_ledger(state_, rules_, find(preemption->preemptor)->uid, preemption->victims, host);
  if (!beyond.empty()) {
    refuse_set(*preemption, beyond);
    return victim->id;
  }
  preemption->started = true;
  begin_pause(*victim, cause_of(*preemption, *victim), true);
  state_.runtime_.at(victim->id).yields_for = preemption->preemptor;
  return victim->id;
}

// The cause is shown while the victim is paused, when the preemptor may be gone. So it has the request of the
// preemptor, and not the present state.
PauseCause Stepper::cause_of(const PreemptionPlan& preemption, const Lease& victim) const {
  const Lease& preemptor = *state_.find(preemption.preemptor);
  PauseCause cause{PauseCauseKind::slice, preemptor.id, args("preemptor", name_of(preemptor))};
  // In a time slice, leases of lower tiers may have to leave as well.
  const bool below = preemption.cause == Cause::slice && victim.tier < preemptor.tier;
  if (preemption.cause == Cause::tier || below) {
    cause.kind = PauseCauseKind::tier;
    cause.args.add("tier", to_string(preemptor.tier));
  } else if (preemption.cause == Cause::request) {
    const bool by_admin = is_admins(preemptor.preemption_request.value_or(PreemptionRequest{victim.uid}), victim);
    cause.kind = by_admin ? PauseCauseKind::admin_preemption : PauseCauseKind::owner_preemption;
  }
  cause.args.add(asked_args(preemptor));
  return cause;
}

// A spot lease that cannot be paused has agreed to be ended when a higher tier needs its memory.
void Stepper::end_spot(Lease& lease, const PreemptionPlan& preemption) {
  const PauseCause cause = cause_of(preemption, lease);
  ReasonArgs why = args("cause", to_string(cause.kind));
  why.add(cause.args);
  if (const auto since = state_.told_in_vain(lease, now_); since >= rules_.spot_unused_after) {
    why.add("silent", *since);
    return end(lease, EndReason::revoked, ReasonKind::spot_unresponsive, std::move(why));
  }
  const ReasonKind kind = why_unpausable(lease, *state_.find(preemption.preemptor), why);
  end(lease, EndReason::revoked, kind, std::move(why));
}

// Why a spot lease cannot be paused for the preemptor; adds the arguments.
ReasonKind Stepper::why_unpausable(const Lease& lease, const Lease& preemptor, ReasonArgs& why) const {
  const MostParkable most = most_parkable(rules_, lease, preemptor.uid);
  const auto methods = pause_methods_of(state_, lease);
  const bool by_a_method = !methods.empty();
  const Barred* barred = by_a_method ? state_.barred(lease.id, methods.front(), now_) : nullptr;
  if (barred != nullptr && open_methods_of(state_, lease, now_).empty()) {
    why.add("obstacle", barred->why);
    return ReasonKind::spot_obstructed;
  }
  if ((by_a_method || may_register(lease)) && lease.reserved() > most.bytes) {
    why.add(args("reserved", lease.reserved(), "most", most.bytes, "bound", most.bound));
    return ReasonKind::spot_too_large;
  }
  if (by_a_method) return ReasonKind::spot_unused;
  if (!may_register(lease)) return ReasonKind::spot_unpausable;
  why.add("idle", rules_.spot_unused_after);
  return lease.pausable == Pausable::driver ? ReasonKind::spot_without_program : ReasonKind::spot_unregistered;
}

// Without the victim that takes most host memory there may be a set that fits. Leases that are being parked may leave
// more of it free in a moment.
void Stepper::refuse_set(const PreemptionPlan& preemption, const std::string& beyond) {
  const auto most = std::ranges::max_element(preemption.victims, {}, &Victim::enters);
  Lease& victim = *find(most->lease);
  leave_alone(victim, {LeftAlone::Ground::refused, ReasonKind::note,
                       args("text", "it is not the only lease that would be paused: " + beyond)});
  if (state_.ledger_unsettled() <= Bytes{}) return;
  Time& until = state_.runtime_.at(victim.id).ineligible_until;
  until = std::min(until, now_ + settling_pause);
  look_again_at(until);
}

}  // namespace sublet::core
