// SPDX-License-Identifier: Apache-2.0
// What is checked of pauses: who is asked to yield, by what right, and what proves that it did.
#include "core/methods.h"
#include "oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace sublet::sim {

using core::LeaseState;
using namespace std::chrono_literals;

// Somebody else is to have its room: one of a higher tier, an equal whose turn it is, or one for whom it was ordered;
// one victim at a time, and not one that has only just come back.
void Oracle::check_displaced(const Lease& lease, Time now) {
  const auto says = [&](const char* what) {
    return [&lease, what] { return fmt::format("{} has to make room: {}", to_string(lease.id), what); };
  };
  bool claimed = false, by_request = false, critical = false;
  for (const auto& [id, other] : leases_) {
    const bool waits = other.state == LeaseState::queued || other.waits_in_place();
    by_request |= waits && requested_.contains(id);
    claimed |= id != lease.id && waits && other.tier >= lease.tier;
    const bool beside = std::any_of(other.devices.begin(), other.devices.end(), [&](const std::string& uuid) {
      return std::find(lease.devices.begin(), lease.devices.end(), uuid) != lease.devices.end();
    });
    const bool yields = other.state == LeaseState::pausing && !engine_->state().stuck(id);
    verdict_.expect(id == lease.id || !beside || !yields || !displaced_.contains(id), "two-victims",
                    says("another on its device has not yielded yet"));
    critical |= waits && other.tier == core::Tier::critical;
  }
  displaced_.insert(lease.id);
  // For whom, as the words say: by now somebody else may be the first who would have that room.
  const core::PauseCause& cause = lease.parking->cause;
  const auto word = word_at_.find(lease.id);
  if (word != word_at_.end() && cause.kind == core::PauseCauseKind::tier) {
    const auto found = leases_.find(cause.preemptor);
    const core::PreemptionRequest& by = word->second.by;
    const bool reached = found != leases_.end() && (by.any_user || by.uid == found->second.uid);
    verdict_.expect(!reached || found->second.waits_since() > word->second.at, "against-a-word", [&] {
      return fmt::format("{} has its room on somebody's word, and yields to {} that had to wait for it",
                         to_string(lease.id), to_string(cause.preemptor));
    });
  }
  verdict_.expect(claimed || by_request, "displaced-for-nobody", says("nobody of its tier or above waits"));
  const auto back = back_at_.find(lease.id);
  verdict_.expect(by_request || critical || back == back_at_.end() || now - back->second >= 2s, "displaced-at-once",
                  says("it has run again for less than two seconds"));
  const Time since = std::max(back == back_at_.end() ? Time{} : back->second, lease.granted_at.value_or(Time{}));
  verdict_.expect(cause.kind != core::PauseCauseKind::slice || now - since >= 10s, "turn-too-soon",
                  says("it has had its room for less than ten seconds"));
}

// No more than a tenth of the time goes into switching: who leaves had its room for as long as its way out and the way
// in of whose turn it is are worth, by what was learned of both; and that one is worth the next switch.
void Oracle::check_slice(const Lease& lease, Time now) {
  if (lease.parking->cause.kind != core::PauseCauseKind::slice) return;
  const LeaseId id = lease.parking->cause.preemptor;
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  check_asked_for(id, now);
  const auto begun = slices_begun_.find(id);
  if (begun == slices_begun_.end() || !begun->second.contains(lease.id)) check_quantum(lease, found->second, now);
  slices_begun_[id].insert(lease.id);  // by one method after the other
}

// Who is to leave when a turn begins, or goes on, leaves, whatever is learned of what that takes until the others have.
void Oracle::check_begun(const core::PreemptionPlan& plan, Time now) {
  const auto preemptor = leases_.find(plan.preemptor);
  if (plan.cause == core::Cause::request && plan.started) return;  // it may go on as the turn that it was before
  if (!plan.by_slice || !plan.started || preemptor == leases_.end()) {
    slices_begun_.erase(plan.preemptor);
    return;
  }
  std::set<LeaseId>& leave = slices_begun_[plan.preemptor];
  for (const core::Victim& victim : plan.victims) {
    const auto lease = leases_.find(victim.lease);
    if (lease == leases_.end() || lease->second.tier != preemptor->second.tier) continue;
    const bool newly = leave.insert(victim.lease).second;
    if (newly && lease->second.state == LeaseState::active) check_quantum(lease->second, preemptor->second, now);
    // It goes on as the turn of the next of these once the preemptor is in.
    for (const LeaseId other : plan.beneficiaries) slices_begun_[other].insert(victim.lease);
  }
}

// When it has had its room for as long as it takes to have the next one in its place, as far as is known by now.
Time Oracle::quantum_over(const Lease& lease, const Lease& next) const {
  const auto takes = [&](const Lease& its, core::Move move, bool is_leaving = false) {
    const auto method = core::pause_method_of(engine_->state(), its);
    core::PauseMethod by = method ? *method : core::PauseMethod::driver;
    Bytes bytes = its.reserves() ? Bytes{} : its.vram;
    if (its.parking && !is_leaving) {
      by = its.parking->method;
      const bool measured = its.parking->measured && by == core::PauseMethod::driver;
      if (measured) bytes = its.parking->host_bytes;
      else
        for (const core::HeldWhenPaused& yielded : its.parking->held_when_paused) bytes += yielded.all;
    } else if (its.reserves()) {
      for (const std::string& uuid : its.devices) bytes += seen_to_use(its.id, uuid).value_or(Bytes{});
    }
    return engine_->state().costs().predict(its.whose(), lease.devices, by, move, bytes).likely;
  };
  const Duration in = takes(next, core::Move::resume);
  const Duration away = takes(next, core::Move::pause) + in;
  const Duration switching = takes(lease, core::Move::pause, /*is_leaving=*/true) + (next.parking ? in : Duration{});
  const auto quantum =
      Duration(static_cast<std::int64_t>(static_cast<double>(switching.count()) / config_.rules.slice_overhead));
  const Duration least = std::max(quantum, config_.rules.min_residency.value_or(std::max<Duration>(10s, 10 * away)));
  const auto back = back_at_.find(lease.id);
  const Time since = std::max(back == back_at_.end() ? Time{} : back->second, lease.granted_at.value_or(Time{}));
  return since + least;
}

// Who was told of a turn is not put off by what is learned since.
void Oracle::note_promised(const core::State& state) {
  std::map<std::pair<LeaseId, LeaseId>, Time> promised;
  const auto note = [&](LeaseId next, LeaseId leaves, bool is_said) {
    const auto lease = leases_.find(leaves), waiter = leases_.find(next);
    if (lease == leases_.end() || waiter == leases_.end() || lease->second.state != LeaseState::active) return;
    const auto before = promised_.find({next, leaves});
    if (is_said) promised[{next, leaves}] = quantum_over(lease->second, waiter->second);
    if (before == promised_.end()) return;
    const auto its = promised.insert(*before).first;
    its->second = std::min(its->second, before->second);
  };
  for (const auto& [uuid, slice] : state.slices()) {
    for (const LeaseId next : slice.enters)
      for (const LeaseId leaves : slice.leaves) note(next, leaves, true);
    // All who come in by one turn are told of the same moment.
    for (const LeaseId leaves : slice.leaves) {
      Time first = Time::never();
      for (const LeaseId next : slice.enters)
        if (const auto its = promised.find({next, leaves}); its != promised.end()) first = std::min(first, its->second);
      for (const LeaseId next : slice.enters)
        if (const auto its = promised.find({next, leaves}); its != promised.end()) its->second = first;
    }
  }
  for (const core::PreemptionPlan& plan : state.plans()) {
    if (!plan.by_slice) continue;  // it has come, and host memory is weighed
    for (const auto& [pair, at] : promised_)
      if (pair.first == plan.preemptor) note(pair.first, pair.second, false);
  }
  promised_ = std::move(promised);
}

void Oracle::check_quantum(const Lease& lease, const Lease& next, Time now) {
  const Time over = quantum_over(lease, next);
  const bool told = std::ranges::any_of(promised_, [&](const auto& its) {  // another who comes in by the same turn, say
    return its.first.second == lease.id && now >= its.second;
  });
  verdict_.expect(now >= over || told, "turns-too-fast", [&] {
    return fmt::format("{} leaves for {} {} before it has had its room for long enough", to_string(lease.id),
                       to_string(next.id), format_duration(over - now));
  });
}

// By a method that its owner allows, and not against the owner's last word: with it nothing but somebody else's need of
// the room has it yield.
void Oracle::check_method(const Lease* before, const Lease& lease, Time now) {
  using P = core::Pausable;
  const auto says = [&lease] { return to_string(lease.id) + " is asked to yield"; };
  if (before != nullptr && before->state == LeaseState::pausing) return;
  const P needed = lease.parking->method == core::PauseMethod::driver ? P::driver : P::cooperative;
  verdict_.expect(lease.pausable == P::automatic || lease.pausable == needed, "method-not-allowed", says);
  verdict_.expect(lease.parking->resume_requested || !wanted_back_.contains(lease.id), "resume-lost", says);
  const bool next = before != nullptr && before->state == LeaseState::resuming;
  if (next && lease.parking->resume_requested) check_displaced(lease, now);
}

// Who is to end once it runs again, is told to when it does, or when it turns out that it never will.
void Oracle::check_deferred_end(const Lease& before, const Lease& lease) {
  const bool deferred = before.parking && before.parking->then_stop && !before.stop_requested;
  const bool still = lease.parking && lease.parking->then_stop && lease.state != LeaseState::poisoned;
  verdict_.expect(!deferred || still || lease.stop_requested || lease.ended(), "end-forgotten", [&] {
    return fmt::format("{} was to end as soon as it runs again, and is {}", to_string(lease.id),
                       core::to_string(lease.state));
  });
}

bool Oracle::wanted_back(LeaseId lease, bool back) {
  const bool before = wanted_back_.contains(lease);
  if (back) wanted_back_.insert(lease);
  else wanted_back_.erase(lease);
  return before;
}

// Who is said to be in the way is not there by a lease of its own.
void Oracle::check_named(const core::Reason& reason) {
  const std::string text = core::text_of(reason);
  const auto at = text.find("pid ");
  const Process* named = at == std::string::npos ? nullptr : world_.process(std::atoi(text.c_str() + at + 4));
  const auto lease = named == nullptr ? leases_.end() : leases_.find(named->lease);
  if (lease == leases_.end() || lease->second.ended()) return;
  bool within = true;
  for (std::size_t card = 0; card < named->held.size(); ++card) {
    const auto& devices = lease->second.devices;
    within &= named->held[card] <= Bytes{} ||
              std::find(devices.begin(), devices.end(), World::uuid_of(card)) != devices.end();
  }
  verdict_.expect(!within, "named-wrongly", [&] { return to_string(reason.lease) + ": " + text; });
}

void Oracle::follow_undo(const Lease& before, const Lease& lease, const store::Batch& batch) {
  const bool was_undoing = undoing_.contains(lease.id);
  const bool paused = std::any_of(batch.reasons.begin(), batch.reasons.end(), [&](const core::Reason& reason) {
    return reason.lease == lease.id && reason.kind == core::ReasonKind::paused;  // and back again at once
  });
  if (lease.state == LeaseState::pausing) to_blame_.erase(lease.id);
  if (lease.state == LeaseState::pausing && before.state != LeaseState::pausing) {
    const double hides = config_.ghosts + config_.missing + config_.lies + config_.lost_cards +
                         config_.unleased_processes + config_.stalls + config_.liars;
    if (hides == 0) measurable_.insert(lease.id);
    else measurable_.erase(lease.id);
  }
  if (before.state == LeaseState::pausing && lease.state == LeaseState::resuming && !paused) {
    undoing_.insert(lease.id);
    if (!hindered_.contains(lease.id)) ++undone_[lease.id];
    check_undone(lease, batch.now);
    if (refuses_.contains(lease.id) || seen_to_lie(before))
      to_blame_[lease.id] = engine_->state().standing(lease.id).failures + 1;
  } else if (lease.state != LeaseState::resuming) {
    undoing_.erase(lease.id);
  }
  if (lease.state == LeaseState::pausing) return;
  // What is over in a moment bars nobody from being asked again.
  const core::Barred* bar = passing_.erase(lease.id) > 0
                                ? engine_->state().barred(lease.id, core::PauseMethod::driver, engine_->now())
                                : nullptr;
  verdict_.expect(bar == nullptr || bar->by != core::Hindrance::program, "barred-for-a-moment",
                  [&] { return to_string(lease.id) + " is not asked for minutes: " + bar->why; });
  refuses_.erase(lease.id), hindered_.erase(lease.id), said_at_.erase(lease.id);
  if (lease.state == LeaseState::active && was_undoing) undone_at_[lease.id] = batch.now;
  if (lease.state == LeaseState::paused) undone_.erase(lease.id);
}

// It said that it has yielded, really has, and was read again and again since, where nothing is hidden: then it is
// measured, however many processes it has and whoever else yields there meanwhile. (What comes back unlisted while it
// yields may as well be its own.)
void Oracle::check_undone(const Lease& lease, Time now) const {
  const auto said = said_at_.find(lease.id);
  if (said == said_at_.end() || !measurable_.contains(lease.id)) return;
  if (now - said->second < config_.rules.verify_timeout) return;
  const bool others_return = std::ranges::any_of(leases_, [&](const auto& entry) {
    const Lease& other = entry.second;
    const bool returns = other.state == LeaseState::resuming || other.resumed_at >= said->second;
    return other.id != lease.id && returns &&
           std::ranges::any_of(lease.devices, [&other](const std::string& uuid) { return is_on(other, uuid); });
  });
  if (others_return) return;
  const bool yields = std::ranges::all_of(lease.devices, [&](const std::string& uuid) {
    const Reading* reading = known(uuid, now);
    const bool read = reading != nullptr && reading->began > said->second + 5s;
    return read && reading->used_by(lease.id) <= lease.parking->residue;
  });
  verdict_.expect(!yields || !world_.quiet(lease.id), "undone-although-gone", [&lease] { return to_string(lease.id); });
}

// Its card is gone for good. Nobody brings its program back any more: it is ended where it is ours, and it was told to
// go on before where it only waits for that.
void Oracle::check_left_parked(const Lease& before, const Lease& lease) {
  const bool parked = world_.waits_for_the_driver(lease.id) || world_.rests(lease.id);
  const bool ours = lease.owner.kind == core::OwnerKind::process && lease.owner.keeper;
  const bool untold = before.state == LeaseState::paused && before.parking->method == core::PauseMethod::cooperative;
  verdict_.expect(!parked || (!untold && (!ours || lease.stop_requested)), "left-parked", [&] {
    return fmt::format("{} was {} when it failed, and its program {}", to_string(lease.id), to_string(before.state),
                       untold ? "still waits to be told to go on" : "stays parked");
  });
}

// That the host has no room for it, that its order was withdrawn, or that the machine or a debugger is in the way, is
// no fault of its own.
void Oracle::answers(LeaseId id, const engine::ParkOutcome& outcome) {
  const auto lease = leases_.find(id);
  if (engine_ == nullptr || lease == leases_.end() || lease->second.state != LeaseState::pausing) return;
  static const std::set<std::string_view> forgiven{
      "withdrawn", "measure_timeout",    "host_memory", "no_right", "not_dumpable", "traced",
      "stopped",   "unsupported_driver", "no_driver",   "helper",   "unreachable",  "gone"};
  if (outcome.kind == engine::ParkOutcome::Kind::done) said_at_[id] = engine_->now() + napped_;
  else if (!forgiven.contains(outcome.code)) refuses_.insert(id);
  else if (outcome.kind == engine::ParkOutcome::Kind::undone) hindered_.insert(id);
  static const std::set<std::string_view> over_soon{"withdrawn", "measure_timeout", "host_memory", "traced",
                                                    "stopped",   "no_driver",       "unreachable", "gone"};
  const bool barred = engine_->state().barred(id, core::PauseMethod::driver, engine_->now()) != nullptr;
  if (over_soon.contains(outcome.code) && !barred) passing_.insert(id);
}

// It said that it has yielded, and for longer than that ever took to be seen it is seen to hold more than it may keep.
bool Oracle::seen_to_lie(const Lease& lease) const {
  const auto said = said_at_.find(lease.id);
  if (said == said_at_.end() || !lease.parking) return false;
  Bytes bytes;
  bool holds = false;
  std::optional<Time> began;
  for (const std::string& uuid : lease.devices) {
    const Reading* reading = known(uuid, engine_->now());
    if (reading == nullptr || (began && *began != reading->began)) return false;
    began = reading->began;
    holds |= reading->used_by(lease.id) > lease.parking->residue;
    if (const auto asked = asked_.find({lease.id, uuid}); asked != asked_.end()) bytes += asked->second;
  }
  const Duration most = config_.rules.verify_timeout;
  const auto takes =
      engine_->state().costs().predict(lease.whose(), lease.devices, lease.parking->method, core::Move::settle, bytes);
  return holds && *began - said->second >= std::clamp(takes.longest, std::min<Duration>(2s, most), most);
}

// The time that it was parked, and the time that it had its room, are all the time since its grant.
void Oracle::check_time_parked(const Lease* before, const Lease& lease, Time now) {
  const bool was = before != nullptr && before->parked();
  const Time since = was ? before->parked_at.value_or(now) : now;
  const Duration earlier = before == nullptr ? Duration{} : before->parked_for;
  const bool counts = lease.parked() ? lease.parked_at == since && lease.parked_for == earlier
                                     : !lease.parked_at && lease.parked_for == earlier + (now - since);
  const Duration parked = lease.parked_until(now);
  const bool fits = parked == Duration{} || (lease.granted_at && parked <= now - *lease.granted_at);
  verdict_.expect(counts && fits, "time-parked", [&] {
    return fmt::format("{} ({}): parked for {} ns", to_string(lease.id), core::to_string(lease.state), parked.count());
  });
}

// Whose pause came to nothing is not asked again at once.
void Oracle::check_left_alone(const Lease& lease, Time now) {
  const auto undone = undone_at_.find(lease.id);
  verdict_.expect(undone == undone_at_.end() || now - undone->second >= config_.rules.cooldown, "no-cooldown", [&] {
    return fmt::format("{} has to make room again, {} after a pause of it came to nothing", to_string(lease.id),
                       format_duration(now - undone->second));
  });
}

// Whether another there has come, gone, or moved since it was asked.
bool Oracle::others_move(const Lease& lease, const std::string& device) const {
  return std::any_of(leases_.begin(), leases_.end(), [&](const auto& entry) {
    const Lease& other = entry.second;
    if (other.id == lease.id || !is_on(other, device)) return false;
    const Time since = std::max(other.granted_at.value_or(Time{}), other.resumed_at.value_or(Time{}));
    return other.parking || other.ended() || since >= lease.parking->since;
  });
}

// Who counts as paused was seen to hold no more than it may keep, wherever it had its room; and what is parked of it is
// in the ledger, whoever saw how much that was.
void Oracle::check_yielded(const Lease& lease) {
  Bytes parked;
  for (const std::string& uuid : lease.devices) parked += world_.parked_by(lease.id, *world_.card_of(uuid));
  const bool honest = lease.parking->method == core::PauseMethod::driver && config_.honest;
  verdict_.expect(!honest || lease.parking->host_bytes >= parked, "ledger-short", [&] {
    return fmt::format("{} is entered with {}, and {} of it are parked", to_string(lease.id),
                       format_size(lease.parking->host_bytes), format_size(parked));
  });
  for (const std::string& uuid : lease.devices) {
    const auto found = readings_.find(uuid);
    const bool known =
        found != readings_.end() && !unread_.contains(uuid) && found->second.began >= lease.parking->since;
    const auto used = known ? found->second.of.find(lease.id) : std::map<LeaseId, Bytes>::const_iterator{};
    const auto says = [&, &uuid = uuid] {
      return fmt::format("{} counts as paused, and nothing shows its bytes gone from {}", to_string(lease.id), uuid);
    };
    verdict_.expect(known && (used == found->second.of.end() || used->second <= lease.parking->residue),
                    "paused-unseen", says);
    // Bytes of others that go at the same time could hide as many, and a reading that is not believed anything.
    const auto unseen = known ? found->second.unseen.find(lease.id) : found->second.unseen.end();
    const bool hidden = known && unseen != found->second.unseen.end() && unseen->second > 256 * MiB;
    const bool others = known && (found->second.used_by({}) > Bytes{} || !ends_.empty() || others_move(lease, uuid));
    // What was in no list when it was asked either may be anybody's.
    const auto asked = asked_.find({lease.id, uuid});
    const bool listed = asked != asked_.end() && asked->second > Bytes{};
    verdict_.expect(!hidden || others || !listed || config_.ghosts > 0 || config_.lies > 0 || config_.lost_cards > 0,
                    "paused-unlisted", says);
  }
}

// A restore that is tried without room is the last one: none is while others are seen to have taken it, or could at any
// moment, unless the room is made sure of first. (That it was free when this was decided is looked at as of everything
// that is given; nobody is told to go on before that is durable.)
void Oracle::restores(LeaseId id, const std::vector<engine::Room>& room) {
  const auto lease = leases_.find(id);
  if (engine_ == nullptr || lease == leases_.end()) return;
  const auto& parking = lease->second.parking;
  if (parking && parking->measured && parking->host_bytes <= Bytes{})
    return;  // said, as far as was measured, to be nothing
  for (const std::string& uuid : lease->second.devices) {
    const std::size_t card = *world_.card_of(uuid);
    // Of more than its size what was not listed when it was asked was known to nobody.
    const auto asked = asked_.find({id, uuid});
    const Bytes known_of = std::max(lease->second.vram, asked == asked_.end() ? Bytes{} : asked->second);
    const Bytes parked = std::min(world_.parked_by(id, card), known_of);
    const Reading* reading = known(uuid, engine_->now());
    if (parked <= Bytes{} || reading == nullptr) continue;
    const bool sure = std::any_of(room.begin(), room.end(), [&uuid = uuid](const engine::Room& its) {
      return its.uuid == uuid && its.all > Bytes{};
    });
    const Bytes free = reading->total - reading->driver_reserved - reading->used;
    const bool shared = reading->used_by({}) > Bytes{};
    verdict_.expect(sure || (free >= parked && !shared), "restored-while-blocked", [&, &uuid = uuid] {
      return fmt::format("{} is to get {} back on {}, {} are seen to be free there{}", to_string(id),
                         format_size(parked), uuid, format_size(free),
                         shared ? ", and programs without a lease use it" : "");
    });
  }
}

void Oracle::check_ledger_entry(const Lease& lease) {
  Bytes entries = lease.parking->host_bytes, uses;
  for (const auto& [id, other] : leases_) {
    if (id != lease.id && other.parking && !other.ended()) entries += other.parking->host_bytes;
  }
  for (const std::string& uuid : lease.devices) {
    if (const auto used = seen_to_use(lease.id, uuid)) uses += std::max(lease.vram, *used);
  }
  verdict_.expect(entries <= config_.rules.ledger_limit, "ledger-limit", [&] {
    return fmt::format("{} is entered with {}, {} in all", to_string(lease.id), format_size(lease.parking->host_bytes),
                       format_size(entries));
  });
  verdict_.expect(lease.pausable != core::Pausable::no, "pinned-and-paused", [&] { return to_string(lease.id); });
  verdict_.expect(readings_.empty() || lease.parking->host_bytes >= uses || !unread_.empty(), "ledger-entry", [&] {
    return fmt::format("{} is entered with {}, and holds {}", to_string(lease.id),
                       format_size(lease.parking->host_bytes), format_size(uses));
  });
}

}  // namespace sublet::sim
