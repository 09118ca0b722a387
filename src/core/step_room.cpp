// SPDX-License-Identifier: Apache-2.0
// Making room: who waits and may ask others to yield has them asked, the cheapest first and one after the other, and
// what is free there is kept for it meanwhile. Nothing of this is stored: it is decided anew, from how things are, each
// time that they have changed, so that a set that cannot be completed any more is given up by itself, and those who
// yielded for it come back by their place in the queue.
#include "base/planted.h"
#include "core/held_room.h"
#include "core/ledger_set.h"
#include "core/methods.h"
#include "core/prospects.h"
#include "core/stepper.h"
#include "core/victims.h"
#include "core/words.h"

#include <algorithm>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

// What is given up may let others start, and they may change what is to be done; more often it is put off to the next
// step.
constexpr int rounds = 4;
// Where more devices than this changed, everything is looked at anew: to ask each of them takes as long.
constexpr std::size_t few_changes = 8;
// Where others might yield on more devices than this, only the first of all waiters ask: each step would take too long.
constexpr std::size_t most_spread = 64;
constexpr Duration settling_pause = 1s;

}  // namespace

// -------------------------------------------------------------------------------- what is to be done

void Stepper::make_room() {
  if (planted(Bug::turns_last_one_step)) state_.turns_.clear();
  for (int round = 0; round < rounds && room_stale(); ++round) {
    made_before_ = std::exchange(state_.makings_, {});
    for (Making& making : made_before_) pass_on(making);
    state_.turns_.clear();
    state_.room_look_at_ = Time::never();
    announce_turns_on_several();
    for (const LeaseId asker : askers_in_turn()) look_for_room(*find(asker));
    leave_contests();
    bool freed = give_up();
    const std::vector<Making> makings = state_.makings_;
    for (const Making& making : makings) freed |= advance(making);
    if (!freed) break;
    grant_waiting();
  }
}

// Once the one has come in for whom a turn has begun, it goes on for the others who come in by it.
void Stepper::pass_on(Making& making) const {
  const Lease* asker = state_.find(making.asker);
  const bool came_in = asker != nullptr && asker->reserves() && !state_.queue_.contains(making.asker);
  if (!making.its_turn || !making.begun || !came_in) return;
  std::erase_if(making.with, [this](LeaseId id) { return !state_.queue_.contains(id); });
  if (making.with.empty()) return;
  making.asker = making.with.front();
  making.with.erase(making.with.begin());
}

// In the order of the queue; but what was begun on somebody's word, or because it is somebody's turn, is gone on with
// before those begin who would not go ahead of it: else whoever yielded would yield for them, or for its own return.
std::vector<LeaseId> Stepper::askers_in_turn() const {
  std::vector<const Making*> gone_on_with;
  for (const Making& making : made_before_)
    if (is_gone_on_with(making)) gone_on_with.push_back(&making);
  std::vector<LeaseId> found;
  std::set<LeaseId> known;
  const auto add = [&](LeaseId id) {
    if (known.insert(id).second) found.push_back(id);
  };
  for (const Asker& asker : state_.askers_.in_order()) {
    for (const Making* making : gone_on_with)
      if (!goes_ahead(asker.key.lease, *making)) add(making->asker);
    add(asker.key.lease);
  }
  return found;
}

// Before anybody has yielded it does not matter whom it would have yield: that depends on who goes ahead of it.
bool Stepper::goes_ahead(LeaseId asker, const Making& making) const {
  const bool word = making.ground != Ground::order && state_.ordered_.contains(asker);
  return word || state_.find(asker)->tier > (making.begun ? making.tier : state_.find(making.asker)->tier);
}

bool Stepper::is_gone_on_with(const Making& making) const {
  if (making.ground == Ground::order) return state_.ordered_.contains(making.asker);
  return making.its_turn && state_.askers_.contains(making.asker);
}

// Where room is held for somebody before it, to whom it would not leave again what it was given, in its turn: nobody
// yields there for such a one, unless on somebody's word.
std::vector<std::string> Stepper::barred_from(const Lease& waiter) const {
  const QueueKey* key = state_.queue_.key(waiter.id);
  std::vector<std::string> devices;
  const bool leaves_again = waiter.pausable != Pausable::no;
  if (leaves_again || key == nullptr) return devices;
  const HeldRooms held(state_, rules_, now_);
  for (const HeldRooms::Entry& entry : held.entries())
    if (entry.key.before(*key)) devices.insert(devices.end(), entry.room.devices.begin(), entry.room.devices.end());
  return devices;
}

// Whether anything has changed that matters here: a device, or who the first waiters are, or it is time to look.
bool Stepper::room_stale() {
  std::vector<Asker> asking = list_askers();
  state_.reindex(rules_, now_);
  const bool time = state_.room_look_at_ <= now_;
  if (time) state_.room_look_at_ = Time::never();
  const bool others = asking != state_.askers_.in_order();
  const bool everything = std::exchange(state_.room_stale_, false) || time || others;
  const std::vector<std::string> changed = std::exchange(state_.room_changed_, {});
  if (!everything && !change_matters(changed)) return false;
  if (others) {
    std::vector<std::vector<std::string>> devices;
    for (const Asker& asker : asking) {
      const Lease& lease = *find(asker.key.lease);
      if (lease.waits_in_place()) devices.push_back(lease.devices);
      else if (!lease.wanted_device.empty()) devices.push_back({lease.wanted_device});
      else devices.emplace_back();
    }
    state_.askers_ = Askers(std::move(asking), devices);
  }
  if (state_.askers_.empty()) return !state_.makings_.empty() || !state_.contests_.empty();
  return true;
}

// Where nothing is under way and nothing was found before, nothing can be found now unless on one of the devices that
// changed.
bool Stepper::change_matters(const std::vector<std::string>& changed) const {
  const bool under_way = !state_.makings_.empty() || !state_.turns_.empty() || contested();
  if (under_way || !state_.ordered_.empty() || changed.size() > few_changes) return !changed.empty();
  return std::any_of(changed.begin(), changed.end(), [this](const std::string& uuid) {
    const Device* device = state_.find_device(uuid);
    return device != nullptr && std::ranges::any_of(state_.askers_.in_order(), [&](const Asker& asker) {
             return might_make_room(state_, rules_, *state_.find(asker.key.lease), *device, now_);
           });
  });
}

// The first that wait; whoever wants to come back; and those for whom room was ordered, wherever they stand.
std::vector<Asker> Stepper::list_askers() {
  std::vector<QueueKey> by_rule;
  if (rules_.automatic || planted(Bug::nothing_is_manual)) {
    add_first_waiters(by_rule);
    add_parked(by_rule);
  }
  std::vector<Asker> all;
  all.reserve(by_rule.size() + state_.ordered_.size());
  for (const QueueKey& key : by_rule) all.push_back({key, true});
  std::erase_if(state_.ordered_, [&](LeaseId id) {
    const QueueKey* key = state_.queue_.key(id);
    if (key != nullptr) all.push_back({*key, false});
    else if (Lease* lease = find(id)) keep_word(*lease);
    return key == nullptr;
  });
  std::sort(all.begin(), all.end(), [](const Asker& a, const Asker& b) {
    return a.key.lease == b.key.lease ? a.by_rule && !b.by_rule : a.key.before(b.key);
  });
  const auto same = [](const Asker& a, const Asker& b) { return a.key.lease == b.key.lease; };
  all.erase(std::unique(all.begin(), all.end(), same), all.end());
  return all;
}

// Nobody keeps those waiting who want something else: as many for each device, and for each number of them.
void Stepper::add_first_waiters(std::vector<QueueKey>& keys) const {
  const Queue& queue = state_.queue_;
  queue.all().first(askers, keys);
  std::size_t devices = 0;
  for (const auto& where : state_.where_) devices += where.size();
  if (queue.size() <= askers || devices > most_spread) return;
  for (const auto& [count, tree] : queue.any()) tree.first(askers, keys);
  queue.sets().first(askers, keys);
  for (const auto& where : state_.where_)
    for (const std::string& device : where)
      if (const QueueTree* tree = queue.named(device)) tree->first(askers, keys);
}

void Stepper::add_parked(std::vector<QueueKey>& keys) const {
  const Queue& queue = state_.queue_;
  for (const LeaseId id : state_.away_) {
    const QueueKey* key = queue.key(id);
    if (key == nullptr) continue;
    const std::vector<std::string>& devices = state_.find(id)->devices;
    const QueueTree& tree = devices.size() > 1 ? queue.sets() : *queue.named(devices.front());
    if (state_.away_.size() <= parked_askers || tree.before(*key) < parked_askers) keys.push_back(*key);
  }
}

// What was kept for those who have no need of it any more, or no hope, is there for all again.
bool Stepper::give_up() {
  bool freed = false;
  for (const Making& old : made_before_) {
    for (const std::string& device : old.devices) {
      if (const Making* now = state_.making_on(device);
          now != nullptr && now->asker == old.asker && now->tier >= old.tier)
        continue;
      if (!planted(Bug::kept_room_stays_kept)) state_.opened_.push_back(device);
      freed = true;
    }
  }
  return freed;
}

void Stepper::look_for_room(const Lease& waiter) {
  if (waits_for_reading(waiter)) return;
  const std::optional<Ordered>& ordered = waiter.ordered;
  if (!ordered && !state_.somebody_might_yield(waiter.tier)) return;
  const Asking asking{waiter, ordered, /*told=*/false};
  const RoomPlan plan = plan_on_or_elsewhere(asking);
  // It comes by itself, or is there. What comes because others left for it is kept for it: they would have it back.
  const bool settles = std::ranges::any_of(
      plan.devices, [this](const std::string& uuid) { return state_.devices_.at(uuid).settling > Bytes{}; });
  const bool for_it =
      plan.under_way ||
      (settles && (begun_for(waiter.id) != nullptr || (ordered && yields_on_its_word(waiter.id, plan.devices))));
  if (plan.found && plan.victims.empty() && (!for_it || is_free(waiter, plan.devices))) return;
  const std::vector<std::string> barred = barred_from(waiter);
  const bool may =
      asking.ground() == Ground::order ||
      std::find_first_of(plan.devices.begin(), plan.devices.end(), barred.begin(), barred.end()) == plan.devices.end();
  if (plan.found && plan.victims.empty() && others_come_in_with(waiter) && go_on_with_turn(waiter)) return;
  if (plan.found && may) {
    // It goes on being its turn while those who leave for it are on their way out.
    const auto old = std::ranges::find_if(
        made_before_, [&waiter](const Making& making) { return making.asker == waiter.id && making.its_turn; });
    const bool its_turn = !ordered && old != made_before_.end();
    const Ground ground = its_turn && plan.victims.empty() ? Ground::turn : asking.ground();
    begin_making({waiter.id, keeps_out(asking, plan), ground, its_turn, /*begun=*/false, plan.devices, plan.victims,
                  its_turn && old->devices == plan.devices ? old->with : std::vector<LeaseId>()});
    return;
  }
  look_again_at(plan.again);
  for (const Spared& spared : plan.spared) look_again_at(spared.until);
  // A word whose victims cannot yield any more takes no right away.
  if (may_ask(state_, rules_, waiter)) wait_for_turn(waiter, barred);
}

// Nothing is decided while the last reading of where room is made for it is too old; what was made so far is kept.
bool Stepper::waits_for_reading(const Lease& waiter) {
  const Making* old = begun_for(waiter.id);
  if (old == nullptr || !state_.queue_.contains(waiter.id)) return false;
  const auto is_late = [this](const std::string& uuid) {
    const Device* device = state_.find_device(uuid);
    return device != nullptr && !state_.known(*device, rules_, now_) && device->problem.empty() &&
           !State::given_up(*device, rules_, now_);
  };
  if (std::ranges::none_of(old->devices, is_late)) return false;
  Making kept = *old;
  kept.victims.clear();
  return begin_making(std::move(kept));
}

// What is on its way is enough for it, and not for those who come in by the same turn.
bool Stepper::others_come_in_with(const Lease& waiter) const {
  const Making* old = begun_for(waiter.id);
  if (old == nullptr || !old->its_turn || old->with.empty()) return false;
  return std::ranges::any_of(old->devices, [&](const std::string& uuid) {
    Bytes need = state_.need(waiter, uuid);
    for (const LeaseId id : old->with)
      if (const Lease* other = state_.find(id); other != nullptr && state_.queue_.contains(id))
        need += state_.need(*other, uuid);
    const auto device = state_.devices_.find(uuid);
    return device != state_.devices_.end() && state_.known(device->second, rules_, now_) &&
           state_.effective_free(device->second, rules_, now_) + device->second.settling +
                   being_yielded(state_, device->second) <
               need;
  });
}

// Room is made for it in one place at a time.
const Making* Stepper::begun_for(LeaseId asker) const {
  const auto found = std::ranges::find_if(
      made_before_, [asker](const Making& making) { return making.asker == asker && making.begun; });
  return found == made_before_.end() ? nullptr : &*found;
}

// Where others have yielded for it already, room goes on being made for it, whatever another device would cost by now:
// else those would have yielded for nothing.
RoomPlan Stepper::plan_on_or_elsewhere(Asking asking) const {
  if (const Making* before = begun_for(asking.lease.id)) {
    asking.on = before->devices;
    if (RoomPlan there = plan_room(state_, rules_, asking, now_); there.found) return there;
    asking.on.clear();
  }
  return plan_room(state_, rules_, asking, now_);
}

// The room is there, and if it is not the waiter's that is because it is held for somebody else: whoever yields there
// does not yield for this one.
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

bool Stepper::begin_making(Making making) {
  for (const std::string& device : making.devices)
    if (state_.making_on(device) != nullptr) return false;  // of one that stands before it
  const Making* old = begun_for(making.asker);
  making.begun =
      old != nullptr && (old->its_turn ? making.its_turn : std::ranges::is_permutation(old->devices, making.devices));
  if (making.ground == Ground::order) making.begun |= yields_on_its_word(making.asker, making.devices);
  state_.makings_.push_back(std::move(making));
  return true;
}

// -------------------------------------------------------------------------------- doing it

// One after the other: the next is asked when the one before has yielded, or could not. True: room may be there at
// once.
bool Stepper::advance(const Making& making) {
  if (making.victims.empty() || somebody_yields(making.devices)) return false;
  // Whose method has just failed is asked by the next one before anybody else is.
  const auto again =
      std::ranges::find_if(making.victims, [this](const Victim& its) { return undone_.contains(its.lease); });
  const Victim& first = again == making.victims.end() ? making.victims.front() : *again;
  Lease& victim = *find(first.lease);
  if (somebody_yields(victim.devices)) return false;
  if (victim.ended()) return false;  // for another asker, on another of its devices
  if (first.ends && !swap_may_be_prevented(victim)) {
    note_begun(making);
    end_spot(victim, making);
    return true;
  }
  if (undone_.contains(victim.id)) return ask_by_next(victim, making), false;
  state_.sides_.at(victim.id).weighed = true;
  plan_.actions.emplace_back(WeighHost{victim.id});
  return false;
}

// That it cannot be was seen some time ago, and whoever shared its control group may have gone since: who is to be
// ended for that is weighed once more.
bool Stepper::swap_may_be_prevented(const Lease& victim) const {
  const std::optional<Barred>& barred = state_.sides_.at(victim.id).barred;
  return barred && barred->by == Hindrance::swap && barred->until < now_ + barred_for;
}

// The method before it was undone a moment ago, and what host memory takes was told with that.
void Stepper::ask_by_next(Lease& victim, const Making& making) {
  const auto undone = undone_.find(victim.id);
  State::Side& side = state_.sides_.at(victim.id);
  const auto methods = pause_methods_of(state_, victim);
  const bool has = side.next && std::find(methods.begin(), methods.end(), *side.next) != methods.end();
  if (!has || !check_host(victim, undone->second.host)) return;
  note_begun(making);
  Parking parking = std::move(undone->second.parking);
  undone_.erase(undone);
  parking.told = false;
  parking.reason = yield_text(making, victim);
  side.yields_for = making.asker;
  note("next_method");
  ask_to_yield(victim, *side.next, std::move(parking));
}

// What was made so far is remembered by those who made it, for the time that nothing more could be.
bool Stepper::yields_on_its_word(LeaseId asker, const std::vector<std::string>& devices) const {
  return std::ranges::any_of(devices, [&](const std::string& uuid) {
    return std::ranges::any_of(state_.devices_.at(uuid).leases, [&](LeaseId id) {
      const Lease& lease = *state_.find(id);
      const bool away = lease.state == LeaseState::pausing || lease.state == LeaseState::paused;
      return away && state_.sides_.at(id).yields_for == asker;
    });
  });
}

void Stepper::note_begun(const Making& making) {
  for (Making& its : state_.makings_) its.begun |= its.asker == making.asker;
}

// For whomever they were asked, their room is not wanted any more, or not theirs.
void Stepper::settle_undone() {
  for (const auto& [id, undone] : std::exchange(undone_, {}))
    if (Lease* lease = find(id); lease != nullptr && lease->state == LeaseState::active)
      runs_again(*lease, undone.parking);
}

// Only now is it known what host memory takes, and a moment has passed: everything is looked at again.
Result<LeaseId> Stepper::on(const HostWeighed& fact) {
  Lease* victim = find(fact.lease);
  if (victim == nullptr) return not_found(to_string(fact.lease) + " is not a live lease");
  state_.sides_.at(victim->id).weighed = false;
  // The driver may have returned to one that was passed over, say: what that leaves is looked at first.
  const auto making = std::find_if(state_.makings_.begin(), state_.makings_.end(), [&](const Making& of) {
    return !of.victims.empty() && of.victims.front().lease == victim->id && !somebody_yields(of.devices);
  });
  if (making == state_.makings_.end() || somebody_yields(victim->devices)) {
    // What is to be done has changed meanwhile. Not at once again: nobody is weighed in turn with another for ever.
    look_again_at(now_ + look_interval);
    return victim->id;
  }
  state_.room_stale_ = true;
  const bool ends = making->victims.front().ends;
  std::optional<Barred>& barred = state_.sides_.at(victim->id).barred;
  if (ends && barred && barred->by == Hindrance::swap) barred.reset();
  if (swaps_for_good(*victim, fact.host))
    bar(*victim, Hindrance::swap, "what is parked of it might be written to the swap device");
  if (ends) return victim->id;
  if (const Status may = check_pause(*victim, fact.host); !may) {
    leave_alone(*victim, {LeftAlone::Ground::refused, may.error().detail});
    return victim->id;
  }
  // Nor is the first asked where there is no host memory for the last. Another's control group is not looked at yet.
  HostMemory host = fact.host;
  host.headroom.reset();
  const std::string beyond = beyond_ledger(state_, rules_, find(making->asker)->uid, making->victims, host);
  if (!beyond.empty() && !planted(Bug::ledger_is_asked_one_by_one)) {
    refuse_set(*making, beyond);
    return victim->id;
  }
  making->begun = true;
  begin_pause(*victim, yield_text(*making, *victim), true);
  state_.sides_.at(victim->id).yields_for = making->asker;
  return victim->id;
}

// Told while the victim is away, when the asker may be over: what was asked for, and nothing of how things are.
std::string Stepper::yield_text(const Making& making, const Lease& victim) const {
  const Lease& asker = *state_.find(making.asker);
  const std::string asked = ", which " + asked_text(asker);
  // With its equals those may have to leave who are below them all.
  const bool below = making.ground == Ground::turn && victim.tier < asker.tier;
  switch (below ? Ground::tier : making.ground) {
    case Ground::tier:
      return "to make room for " + name_of(asker) + ", of the tier " + std::string(to_string(asker.tier)) + asked;
    case Ground::turn: return "for the turn of " + name_of(asker) + asked;
    case Ground::order: break;
  }
  const std::string whose = whose_word(asker.ordered.value_or(Ordered{victim.uid}), victim);
  return "on the word of " + whose + " to make room for " + name_of(asker) + asked;
}

// It cannot be paused, and has agreed to be ended when somebody above it needs its room.
void Stepper::end_spot(Lease& lease, const Making& making) {
  std::string text = yield_text(making, lease) + "; it is of the tier spot";
  if (const auto since = state_.told_in_vain(lease, now_); since >= rules_.idle_after) {
    text += ", and its program has not gone on for " + format_duration(*since) + " since it was told to";
    return end(lease, EndReason::revoked, text, "displaced");
  }
  text += " and cannot be paused";
  const MostParkable most = most_parkable(rules_, lease, state_.find(making.asker)->uid);
  const auto methods = pause_methods_of(state_, lease);
  const bool by_a_method = !methods.empty();
  const Barred* barred = by_a_method ? state_.barred(lease.id, methods.front(), now_) : nullptr;
  if (barred != nullptr && open_methods_of(state_, lease, now_).empty()) {
    text += ": " + barred->why;
  } else if ((by_a_method || may_register(lease)) && lease.reserved() > most.bytes) {
    text += ": of the " + format_size(lease.reserved()) + " that it was given, host memory could take no more than " +
            format_size(most.bytes) + " (" + std::string(most.bound) + ")";
  } else if (by_a_method) {
    text += ": nothing of its program has been on a card for a while that could be parked";
  } else if (may_register(lease)) {
    text += lease.pausable == Pausable::driver ? ": no program of it has come" : ": nothing has said how it yields";
    text += ", for " + format_duration(rules_.idle_after) + " (`pause.idle_after`)";
  }
  end(lease, EndReason::revoked, text, "displaced");
}

// Without the one that takes most of it there may be a set that fits; who is being parked may leave more of it free in
// a moment.
void Stepper::refuse_set(const Making& making, const std::string& beyond) {
  const auto most = std::ranges::max_element(making.victims, {}, &Victim::enters);
  Lease& victim = *find(most->lease);
  leave_alone(victim, {LeftAlone::Ground::refused, "not it alone would have to yield, but " + beyond});
  if (state_.ledger_unsettled() <= Bytes{}) return;
  Time& until = state_.sides_.at(victim.id).spared_until;
  until = std::min(until, now_ + settling_pause);
  look_again_at(until);
}

}  // namespace sublet::core
