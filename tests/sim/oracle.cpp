// SPDX-License-Identifier: Apache-2.0
// What is checked as it is decided: every change of a lease, and every promise.
#include "oracle.h"

#include "gpu/snapshot.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using core::LeaseState;
using namespace std::chrono_literals;

Oracle::Oracle(const Config& config, Verdict& verdict, const World& world)
    : config_(config), verdict_(verdict), world_(world) {}

void Oracle::begin(const engine::Engine* engine, const WatchedStore* store, Time now) {
  if (engine_ == nullptr) last_id_ = 0;  // who was told of an id knows that it is durable
  engine_ = engine;
  store_ = store;
  std::erase_if(over_, [store](LeaseId id) { return !store->ended(id); });
  readings_.clear();
  believed_.clear();
  unread_.clear();
  ends_.clear();
  leases_.clear();
  unheld_.clear();
  forgiven_.clear();
  back_by_.clear();
  back_at_.clear();
  displaced_.clear();
  undoing_.clear();
  undone_at_.clear();
  undone_.clear();
  refuses_.clear(), hindered_.clear(), passing_.clear();
  said_at_.clear();
  to_blame_.clear();
  returns_by_.clear();
  plans_.clear();
  named_at_.clear(), silent_.clear(), told_since_.clear(), heard_from_ = now;
  looked_.reset(), looked_at_ = {};
  forget_slices();
  for (const auto& [id, row] : store->durable()) {
    const Lease& lease = leases_[id] = row.lease;
    if (lease.ended() && lease.had_process) ends_[id] = {*lease.ended_at, lease.vram, lease.devices};
    if (!lease.ended() && lease.owner.kind == core::OwnerKind::connection && !held_.contains(id)) unheld_[id] = now;
    if (lease.state == LeaseState::active && lease.resumed_at) back_at_[id] = *lease.resumed_at;
    if (lease.state == LeaseState::resuming) told_since_[id] = now;
    last_id_ = std::max(last_id_, id.number);
  }
  keep_deserted(now);
  follow_restart();
  stood_still(now);
  checked_.reset();
  last_now_ = now, awake_ = world_.awake();  // what was decided and not stored may be decided again
}

void Oracle::lagged(Time now) {
  lagged_at_ = now;
  forget_slices();
  for (auto& [id, by] : returns_by_) by = std::max(by, now + napped_ + 15s);
}

void Oracle::stood_still(Time now) {
  lagged(now);
  wakes_ = true;
  heard_from_ = now;
  for (const auto& [id, lease] : leases_) {
    if (lease.ended()) continue;
    if (lease.expires_at) forgiven_[id] = now + config_.rules.reconnect;
    if (unheld_.contains(id)) back_by_[id] = now + config_.rules.reconnect;
  }
}

// ------------------------------------------------------------------------------------------------ readings

void Oracle::reading(const gpu::GpuSnapshot& snapshot, Time began, const std::function<LeaseId(ProcessRef)>& lease_of) {
  const gpu::GpuSnapshot judged = gpu::judge(snapshot);
  checked_.reset();
  const auto before = config_.quiet ? readings_ : std::map<std::string, Reading>();
  read(judged, began, lease_of);
  const auto same = [](const auto& was, const auto& is) {
    return was.first == is.first && was.second.used == is.second.used && was.second.of == is.second.of;
  };
  if (!unread_.empty() || !std::ranges::equal(before, readings_, same)) ++changes_;
}

// What came since the last reading beyond what listed processes took, and is no more than those are to have who are
// brought back there.
Bytes Oracle::arrived(const std::string& device, const Reading& reading,
                      const std::function<LeaseId(ProcessRef)>& lease_of) const {
  const auto last = believed_.find(device);
  if (last == believed_.end()) return {};
  Bytes to_come;
  std::set<LeaseId> back;
  for (const auto& [id, lease] : leases_) {
    if (lease.state != LeaseState::resuming || lease.parking->method != core::PauseMethod::driver) continue;
    if (!is_on(lease, device)) continue;
    back.insert(id);
    const Bytes all = std::min(lease.vram, engine_->state().to_restore(lease, device).all);
    to_come += std::max(all - std::max(lease.parking->residue, reading.used_by(id)), Bytes{});
  }
  Bytes grew = reading.used - last->second.used, own, listed;
  for (const auto& [process, bytes] : reading.each) {
    listed += bytes;
    const auto before = last->second.each.find(process);
    const Bytes more = std::max(bytes - (before == last->second.each.end() ? Bytes{} : before->second), Bytes{});
    grew -= more;
    if (back.contains(lease_of(process))) own += more;
  }
  const Bytes most = std::min(to_come, std::max(reading.used - listed, Bytes{}));
  return std::clamp(last->second.arrived + std::max(grew, Bytes{} - own), Bytes{}, most);
}

void Oracle::read(const gpu::GpuSnapshot& judged, Time began, const std::function<LeaseId(ProcessRef)>& lease_of) {
  if (!judged.problem.empty() || engine_ == nullptr) return;
  looked_ = began;
  looked_at_ = world_.awake();
  for (const auto& [uuid, reading] : readings_) unread_.insert(uuid);
  for (const auto& [uuid, reading] : readings_) {
    const auto its = engine_->state().devices().find(uuid);
    if (its != engine_->state().devices().end() && its->second.read_at == reading.began) believed_[uuid] = reading;
  }
  std::map<std::string, int> listed;
  for (const gpu::GpuDevice& device : judged.devices) ++listed[device.uuid];
  for (const gpu::GpuDevice& device : judged.devices) {
    if (!device.problem.empty() || listed[device.uuid] > 1 || device.used < Bytes{}) {
      unread_.insert(device.uuid);
      continue;
    }
    Reading reading{began, device.total, device.driver_reserved, device.used, {}, {}, {}, {}};
    for (const gpu::GpuProcess& process : device.processes) {
      reading.of[lease_of(process.process)] += process.used.value_or(Bytes{});
      reading.each[process.process] += process.used.value_or(Bytes{});
    }
    reading.arrived = arrived(device.uuid, reading, lease_of);
    if (device.processes.empty() && (device.used - reading.arrived).count > device.total.count / 2) {
      unread_.insert(device.uuid);
      continue;
    }
    for (const auto& [id, used] : reading.of)
      if (used > Bytes{}) used_at_[id] = began;
    for (const auto& [id, lease] : leases_)
      if (const Bytes unseen = world_.unseen(id, *world_.card_of(device.uuid)); unseen > Bytes{})
        reading.unseen[id] = unseen;
    readings_[device.uuid] = std::move(reading);
    unread_.erase(device.uuid);
  }
  // What ended before this began is as it is seen now.
  std::erase_if(ends_, [&](const auto& entry) {
    const End& end = entry.second;
    return std::all_of(end.devices.begin(), end.devices.end(), [&](const std::string& uuid) {
      const auto found = readings_.find(uuid);
      return found != readings_.end() && !unread_.contains(uuid) && found->second.began >= end.at;
    });
  });
}

// ------------------------------------------------------------------------------------------------ decisions

void Oracle::intended(const store::Batch& batch) {
  for (const std::string_view transition : batch.transitions) verdict_.met.happened(transition);
  if (engine_ == nullptr) return;
  const bool goes_on = batch.transitions.size() == 1 && batch.transitions.front() == core::later_portion;
  const bool changes = !goes_on && (!batch.changed.empty() || !batch.settled.empty() || !batch.learned.empty() ||
                                    !batch.records.empty());
  if (changes) ++changes_;
  for (const core::Reason& reason : batch.reasons) {
    const std::string code(core::code(reason)), text = core::text_of(reason);
    if (trace_) fmt::print("    {} {}: {}\n", to_string(reason.lease), code, text);
    last_words_[reason.lease] = text;
    verdict_.expect(code != "ended" || reason.args.text("cause") != "slice", "turn-ends-somebody",
                    [&] { return to_string(reason.lease) + ": " + text; });
    if (reason.kind == core::ReasonKind::blocked_by_processes) check_named(reason);
    verdict_.expect(!code.empty() && !text.empty(), "unexplained",
                    [&] { return "an empty reason for " + to_string(reason.lease); });
  }
  waited_.clear();
  std::vector<std::pair<std::optional<Lease>, const Lease*>> granted;  // as it was, and is; after who gives room up
  if (!goes_on) came_back_.clear(), cleared_.clear(), kept_.clear(), asked_now_.clear();
  for (const Lease& lease : batch.changed) {
    const auto old = leases_.find(lease.id);
    const std::optional<Lease> before = old == leases_.end() ? std::nullopt : std::optional(old->second);
    const bool held = before && before->reserves();
    const bool grown = held && lease.reserves() && lease.reserved_each() > before->reserved_each() &&
                       (before->state == LeaseState::active || (before->parked() && !lease.parked()));  // else kept
    if (grown && before->parked()) follow_back(*before, batch.now);
    const bool was_out = held && (before->parked() || before->state == LeaseState::pausing);
    if (was_out && lease.state == LeaseState::resuming)  // one that yielded may be given its room again in one step
      for (const std::string& device : lease.devices) kept_[device] += before->parking->residue;
    check_change(before ? &*before : nullptr, lease, batch);
    // Also of one that had been given its room in this very step.
    if (lease.end_reason == core::EndReason::revoked) cleared_.insert(lease.devices.begin(), lease.devices.end());
    leases_[lease.id] = lease;
    follow_return(before ? &*before : nullptr, lease);
    follow_word(before ? &*before : nullptr, lease, batch.now);
    if (lease.reserves() && (!held || grown)) granted.emplace_back(before, &lease), note_waited(before);
    if (held && lease.state == LeaseState::active && before->state == LeaseState::active) follow_shrunk(*before, lease);
  }
  if (!goes_on) woke_ = std::exchange(wakes_, false);
  for (const auto& [before, lease] : granted) {
    check_room(*lease, batch.now, woke_);
    if (before && before->state == LeaseState::paused) check_stays_out(*before, *lease, batch);
    follow_given(before ? &*before : nullptr, *lease, batch.now);
  }
  // What the machine ran before it was started anew is gone, whatever was read.
  if (std::ranges::find(batch.transitions, "lost") != batch.transitions.end()) ends_.clear();
  for (const LeaseId id : batch.settled) {
    const auto lease = leases_.find(id);
    verdict_.expect(lease == leases_.end() || lease->second.ended(), "settled-alive",
                    [&] { return to_string(id) + " is settled and has not ended"; });
    leases_.erase(id);
  }
  if (!batch.settled.empty())
    std::erase_if(given_, [this](const auto& entry) { return !leases_.contains(entry.first.first); });
  std::erase_if(leases_, [](const auto& entry) { return entry.second.ended() && !entry.second.had_process; });
}

void Oracle::check_change(const Lease* before, const Lease& lease, const store::Batch& batch) {
  const auto name = [&] { return fmt::format("{} ({})", to_string(lease.id), core::to_string(lease.state)); };
  verdict_.mix(lease.id.number * 64 + static_cast<std::uint64_t>(lease.state));
  follow_silent(before, lease, batch.now);
  if (before == nullptr) {
    verdict_.expect(lease.id.number > last_id_, "id-again", [&] { return name() + " is new, and its number is not"; });
    verdict_.expect(!over_.contains(lease.id), "id-again", [&] { return name() + " is back from the dead"; });
    last_id_ = std::max(last_id_, lease.id.number);
    ++leases_seen_;
    if (lease.owner.kind == core::OwnerKind::connection && lease.unheld_since) unheld_[lease.id] = batch.now;
  } else {
    verdict_.expect(lease.generation >= before->generation, "generation-shrank", name);
    check_transition(*before, lease), check_deferred_end(*before, lease);
    if (lease.state != before->state) {
      verdict_.expect(std::any_of(batch.reasons.begin(), batch.reasons.end(),
                                  [&](const core::Reason& reason) { return reason.lease == lease.id; }),
                      "unexplained", [&] { return name() + " changed its state, and nothing says why"; });
    }
  }
  const std::set<std::string> distinct(lease.devices.begin(), lease.devices.end());
  verdict_.expect(
      !lease.reserves() ||
          (distinct.size() == static_cast<std::size_t>(lease.device_count) && distinct.size() == lease.devices.size()),
      "gang", [&] { return fmt::format("{} has {} of {} devices", name(), distinct.size(), lease.device_count); });
  const bool yields = lease.state == LeaseState::pausing || lease.state == LeaseState::resuming || lease.parked();
  verdict_.expect(lease.parking.has_value() == yields, "parking-state", name);
  if (lease.state == LeaseState::pausing && (before == nullptr || before->state == LeaseState::active)) {
    check_ledger_entry(lease);
    if (lease.parking && lease.parking->resume_requested)
      check_displaced(lease, batch.now), check_left_alone(lease, batch.now);
    if (lease.parking && before != nullptr) check_slice(lease, batch.now);
    const bool agreed = lease.owner.keeper || engine_->state().granted(lease.whose());
    verdict_.expect(!lease.parking || lease.parking->method != core::PauseMethod::driver || agreed,
                    "parked-without-leave", [&] { return name() + ": nobody agreed to that"; });
  }
  if (lease.state == LeaseState::active && before != nullptr && before->parking) {
    verdict_.expect(!world_.waits_for_the_driver(lease.id), "never-restored",
                    [&] { return name() + " counts as running, and its program is still locked or parked"; });
    verdict_.expect(!world_.rests(lease.id), "never-told-to-go-on",
                    [&] { return name() + " counts as running, and its program waits to be told so"; });
  }
  const bool asked = lease.state == LeaseState::pausing && (before == nullptr || before->state != LeaseState::pausing);
  if (asked && lease.parking) {
    if (before == nullptr || before->state == LeaseState::active)
      pause_began_[lease.id] = world_.awake(), deserted_.erase(lease.id);
    check_limits(lease);
    asked_now_.insert(lease.id);
  }
  const Bytes entered = before != nullptr && before->parking ? before->parking->host_bytes : Bytes{};
  const bool measured = std::ranges::find(batch.transitions, "parked_again_measured") != batch.transitions.end();
  if (lease.parking && !lease.parking->measured && lease.parking->host_bytes > entered && !measured) check_share(lease);
  check_time_parked(before, lease, batch.now);
  if (before != nullptr) follow_undo(*before, lease, batch);
  if (lease.state == LeaseState::pausing) check_method(before, lease, batch.now);
  if (lease.state != LeaseState::pausing) displaced_.erase(lease.id);
  if (lease.state == LeaseState::active && before != nullptr && before->parking) back_at_[lease.id] = batch.now;
  if (lease.state == LeaseState::paused && before != nullptr && before->state == LeaseState::pausing)
    check_yielded(lease);
  pauses_seen_ += lease.state == LeaseState::paused && before != nullptr && before->state == LeaseState::pausing;
  const auto& noted = batch.transitions;  // a renewal may come at the very time of the grant
  const bool renewed = std::find(noted.begin(), noted.end(), "renewed") != noted.end();
  if (before != nullptr && (renewed || lease.expires_at != before->expires_at) && !lease.ended())
    forgiven_.erase(lease.id);
  if (lease.ended() && (before == nullptr || !before->ended())) check_end(before, lease, batch);
  if (lease.owner.kind != core::OwnerKind::connection) unheld_.erase(lease.id);
}

void Oracle::check_transition(const Lease& before, const Lease& lease) {
  using S = LeaseState;
  static const std::map<S, std::set<S>> may{
      {S::queued, {S::queued, S::offered, S::active, S::ended}},
      {S::offered, {S::queued, S::offered, S::active, S::ended}},
      {S::active, {S::active, S::pausing, S::ended}},
      {S::pausing, {S::pausing, S::paused, S::resuming, S::ended}},
      {S::paused, {S::paused, S::resuming, S::ended}},
      {S::resuming, {S::resuming, S::active, S::poisoned, S::ended}},
      {S::poisoned, {S::poisoned, S::ended}},
      {S::ended, {S::ended}},
  };
  // The next method, once the one before is undone.
  const bool next_method = before.state == S::resuming && lease.state == S::pausing && before.parking &&
                           lease.parking && before.parking->method != lease.parking->method;
  verdict_.expect(next_method || may.at(before.state).contains(lease.state), "transition", [&] {
    return fmt::format("{} went from {} to {}", to_string(lease.id), core::to_string(before.state),
                       core::to_string(lease.state));
  });
  verdict_.expect(!before.ended() || lease.end_reason == before.end_reason, "end-changed",
                  [&] { return to_string(lease.id) + " ended twice, for two reasons"; });
  const bool given = !before.reserves() && lease.reserves();
  verdict_.expect(!given || lease.generation > before.generation, "generation-stood",
                  [&] { return to_string(lease.id) + " was given its room, and its generation did not grow"; });
}

// ------------------------------------------------------------------------------------------------ promises

// What comes back with a lease: what its processes yielded, which may be all that it was promised, and what they took
// since.
void Oracle::follow_return(const Lease* before, const Lease& lease) {
  const LeaseState was = before == nullptr ? LeaseState::queued : before->state;
  for (const std::string& uuid : lease.devices) {
    const OnDevice here{lease.id, uuid};
    const Bytes uses = seen_to_use(lease.id, uuid).value_or(Bytes{});
    if (lease.state == LeaseState::pausing && was != LeaseState::pausing) {
      asked_at_[lease.id] = lease.parking->since;
      if (was != LeaseState::resuming) asked_[here] = {};  // else the next method: what the last one had parked is back
      asked_[here] = std::max(asked_[here], uses);
      coming_[here] = std::max(lease.vram, asked_[here]);
    }
    if (!is_moved(lease)) coming_.erase(here);
    if (lease.state != LeaseState::resuming || was != LeaseState::paused) continue;
    const Bytes since = uses > lease.parking->residue ? uses - lease.parking->residue : Bytes{};
    coming_[here] = std::max(lease.vram, asked_[here]) + since;
  }
}

// By the newest reading, where that is the one that the engine goes by.
std::optional<Bytes> Oracle::seen_to_use(LeaseId lease, const std::string& uuid) const {
  const auto found = readings_.find(uuid);
  const auto device = engine_->state().devices().find(uuid);
  if (found == readings_.end() || device == engine_->state().devices().end()) return std::nullopt;
  if (device->second.read_at != found->second.began) return std::nullopt;  // of a moment at which the machine slept
  return found->second.used_by(lease);
}

bool Oracle::is_moved(const Lease& lease) {
  return lease.state == LeaseState::pausing || lease.state == LeaseState::resuming;
}

bool Oracle::waits(const Lease& lease) { return lease.state == LeaseState::queued || lease.waits_in_place(); }

// Of a pause that fails it keeps its room.
bool Oracle::has_room(const Lease& lease) {
  return lease.state == LeaseState::active || lease.state == LeaseState::offered || is_moved(lease);
}

void Oracle::follow_word(const Lease* before, const Lease& lease, Time now) {
  const bool lapsed = before != nullptr && lease.lapsed_offers != before->lapsed_offers;
  // The word was about what it wanted then: not about more than that, and not about a growth that it did not get.
  const Bytes wanted = before == nullptr ? Bytes{} : before->resize ? before->resize->vram : before->vram;
  const bool more = before != nullptr && lease.vram > std::max(before->vram, wanted);
  const bool as_wanted = before != nullptr && (!before->resize || lease.vram == wanted);
  // It had yielded, and was given room again, all in one step.
  const bool anew = before != nullptr && before->state == LeaseState::pausing && lease.state == LeaseState::resuming &&
                    !lease.preemption_request;
  if (!has_room(lease) || waits(lease) || lapsed || more || anew) word_at_.erase(lease.id);
  else if (before != nullptr && waits(*before) && before->preemption_request && as_wanted)
    word_at_[lease.id] = {now, *before->preemption_request};
}

// What was decided and not stored has not happened; all else holds over a restart as it did before.
void Oracle::follow_restart() {
  const auto durable = [this](LeaseId id) {
    const auto found = leases_.find(id);
    return found == leases_.end() ? nullptr : &found->second;
  };
  std::erase_if(asked_, [&](const auto& entry) {
    const Lease* lease = durable(entry.first.first);
    return lease == nullptr || !lease->parking || asked_at_[lease->id] != lease->parking->since;
  });
  std::erase_if(coming_, [&](const auto& entry) {
    const Lease* lease = durable(entry.first.first);
    return lease == nullptr || !is_moved(*lease) || asked_at_[lease->id] != lease->parking->since;
  });
  // That it had yielded, and what it took after that, went with it.
  for (auto& [key, coming] : coming_)
    if (const Lease& lease = *durable(key.first); lease.state == LeaseState::pausing)
      coming = std::max(lease.vram, asked_[key]);
  // By which it grew, and when it was back, nobody stores.
  std::erase_if(given_, [&](const auto& entry) {
    const Lease* lease = durable(entry.first.first);
    return lease == nullptr || entry.second.empty() || lease->granted_at != entry.second.front().first;
  });
  for (auto& [key, given] : given_) given.resize(1);
  std::erase_if(word_at_, [&](const auto& entry) {
    const Lease* lease = durable(entry.first);
    return lease == nullptr || !lease->preemption_request || !has_room(*lease) || waits(*lease);
  });
  // Another word, later than the one that is stored, may have been lost.
  for (auto& [id, word] : word_at_)
    word.at = std::min(word.at, durable(id)->preemption_request->given_at.value_or(word.at));
}

// What must be counted as taken there, by what was read and what was promised since.
Oracle::Claims Oracle::claims(const std::string& device, const Reading& reading) const {
  const auto is_on = [&device](const std::vector<std::string>& devices) {
    return std::find(devices.begin(), devices.end(), device) != devices.end();
  };
  Bytes leases, seen;
  std::vector<LeaseId> counted;  // few: this is asked of every device after every step
  const auto is_counted = [&counted](LeaseId id) {
    return std::find(counted.begin(), counted.end(), id) != counted.end();
  };
  // Returns what it is seen to use.
  const auto count = [&](LeaseId id, Bytes promised) {
    const Bytes uses = reading.used_by(id);
    leases += std::max(promised, uses);
    seen += uses;
    counted.push_back(id);
    return uses;
  };
  std::vector<const Lease*> here;
  here.reserve(leases_.size());
  counted.reserve(leases_.size() + ends_.size());
  for (const auto& [id, lease] : leases_)
    if (lease.reserves() && is_on(lease.devices)) here.push_back(&lease);
  // One that has a device to itself may come back with more than it has: nobody else is promised any, but for what goes
  // into the headroom.
  Bytes present;
  for (const Lease* lease : here) present += lease->parked() ? Bytes{} : lease->reserved_each();
  for (const Lease* lease : here) {
    const bool alone = present - lease->reserved_each() <= config_.rules.headroom;
    const auto coming = alone ? coming_.end() : coming_.find({lease->id, device});
    const Bytes uses =
        count(lease->id, std::max(lease->reserved_each(), coming == coming_.end() ? Bytes{} : coming->second));
    // What the driver keeps of what it has parked is in no list.
    seen += std::max(lease->kept_unseen() - uses, Bytes{});
  }
  for (const auto& [id, end] : ends_)
    if (end.at > reading.began && !is_counted(id) && is_on(end.devices)) count(id, end.each);
  Bytes others;
  for (const auto& [id, used] : reading.of) {
    if (!is_counted(id)) others += used;
  }
  return {leases, std::max(others, reading.used - seen - reading.arrived)};
}

Bytes Oracle::claimed(const std::string& device, const Reading& reading) const {
  return claims(device, reading).sum() - in_headroom(device);
}

// Whoever was given room last found it free when those were still parked who came back by the same decision: what they
// kept of the headroom is theirs, and nobody's loss. Who wakes goes by what it has read, whatever waits to be read.
void Oracle::check_room(const Lease& lease, Time now, bool wakes) {
  for (const std::string& uuid : lease.devices) {
    const auto found = readings_.find(uuid);
    const auto its = engine_->state().devices().find(uuid);
    // It is told to go on without the card, which is to be forgotten; or because it is to end, and is nobody's to end.
    const bool gone = its != engine_->state().devices().end() && its->second.missing_since;
    const bool ends = lease.parking && lease.parking->then_stop && !lease.owner.keeper;
    const bool goes_on = lease.state == LeaseState::resuming && gone &&
                         (ends || now - *its->second.missing_since >= config_.rules.forget_after);
    if (goes_on) continue;
    const bool older = wakes && found != readings_.end() && its != engine_->state().devices().end() &&
                       its->second.read_at && *its->second.read_at < found->second.began;
    const bool known = older ? now - *its->second.read_at <= config_.rules.max_age
                             : found != readings_.end() && !unread_.contains(uuid) &&
                                   now - found->second.began <= config_.rules.max_age;
    verdict_.expect(known, "granted-on-a-guess", [&] {
      return fmt::format("{} is given room on {}, of which nothing is known", to_string(lease.id), uuid);
    });
    if (!known) return;
    if (older) continue;
    const Bytes all = capacity(found->second), taken = claims(uuid, found->second).sum();
    const auto kept = kept_.find(uuid);
    const Bytes may = std::min(config_.rules.headroom, residues(uuid) + (kept == kept_.end() ? Bytes{} : kept->second));
    verdict_.expect(taken <= all + may, "promised-twice", [&] {
      return fmt::format("{} is given {} on {}: {} of {} are spoken for, and parked leases keep {} of the headroom",
                         to_string(lease.id), format_size(lease.reserved_each()), uuid, format_size(taken),
                         format_size(all), format_size(may));
    });
  }
}

void Oracle::told(LeaseId lease, std::uint64_t generation) {
  const Lease* durable = store_->find(lease);
  verdict_.expect(store_->ended(lease) || (durable != nullptr && durable->generation >= generation),
                  "told-before-durable", [&] {
                    return fmt::format("somebody was told of {} at generation {}, which is not durable",
                                       to_string(lease), generation);
                  });
}

void Oracle::held(LeaseId lease, bool held, Time now) {
  if (trace_) fmt::print("    {} is {}\n", to_string(lease), held ? "held" : "let go");
  held ? void(held_.insert(lease)) : void(held_.erase(lease));
  const auto found = leases_.find(lease);
  if (found == leases_.end() || found->second.owner.kind != core::OwnerKind::connection) return;
  if (held) unheld_.erase(lease), back_by_.erase(lease);
  else unheld_.emplace(lease, now);
}

}  // namespace sublet::sim
