// SPDX-License-Identifier: Apache-2.0
// What is checked of who yields for whom: nobody does for nothing, of those who surely could the cheapest do, and an
// unleased process that has taken the room is named.
// The sums are the oracle's own; where the engine, for its own reasons, promises less than they allow, nothing is said.
#include "core/blocked.h"
#include "core/methods.h"
#include "core/victims.h"
#include "oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

namespace sublet::sim {

using core::LeaseState;
using core::PauseMethod;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t tried_by_force = 12;  // all sets of so many
constexpr Duration decided_anew = 3s;       // when nothing else changes: at the next reading

}  // namespace

bool Oracle::is_on(const Lease& lease, const std::string& device) {
  return std::find(lease.devices.begin(), lease.devices.end(), device) != lease.devices.end();
}

// What it is counted with on one of its devices, by what was read and what was promised.
Bytes Oracle::counted(const Lease& lease, const std::string& device, const Reading& reading) const {
  const auto coming = coming_.find({lease.id, device});
  Bytes bytes = reading.used_by(lease.id);
  if (lease.reserves()) bytes = std::max(bytes, lease.reserved_each());
  if (lease.reserves() && coming != coming_.end()) bytes = std::max(bytes, coming->second);
  return bytes;
}

// The reading of it that the engine goes by, if that can be believed.
const Oracle::Reading* Oracle::known(const std::string& device, Time now) const {
  const auto found = readings_.find(device);
  const auto its = engine_->state().devices().find(device);
  if (found == readings_.end() || its == engine_->state().devices().end() || unread_.contains(device)) return nullptr;
  const bool same = its->second.read_at == found->second.began;
  return same && engine_->state().known(its->second, config_.rules, now) ? &found->second : nullptr;
}

Bytes Oracle::capacity(const Reading& reading) const {
  return reading.total - reading.driver_reserved - config_.rules.headroom;
}

// What those that are parked there may keep is in the headroom first.
Bytes Oracle::in_headroom(const std::string& device) const {
  return std::min(config_.rules.headroom, residues(device));
}

Bytes Oracle::residues(const std::string& device) const {
  Bytes sum;
  for (const auto& [id, lease] : leases_)
    if (lease.parked() && is_on(lease, device)) sum += lease.parking->residue;
  return sum;
}

// What of one that has ended is still to be measured gone.
Bytes Oracle::settling(const Lease& ended, const std::string& device, const Reading& reading) const {
  const auto end = ends_.find(ended.id);
  const bool later = end != ends_.end() && end->second.at > reading.began;
  return std::max(later ? end->second.each : Bytes{}, counted(ended, device, reading));
}

// From those who have ended, and from those who yield already and are expected to; but for those who are to yield now.
Bytes Oracle::coming_free(const std::string& device, const Reading& reading,
                          const std::vector<core::Victim>& victims) const {
  Bytes coming, residues;
  for (const auto& [id, lease] : leases_) {
    if (lease.parked() && is_on(lease, device)) residues += lease.parking->residue;
    const auto is_it = [&id = id](const core::Victim& victim) { return victim.lease == id; };
    if (!is_on(lease, device) || std::any_of(victims.begin(), victims.end(), is_it)) continue;
    // What is given up, with a card that was lost, say, is not waited for; nor is it free while it is listed.
    if (lease.ended() && engine_->state().charge(id, device).settling) coming += settling(lease, device, reading);
    if (engine_->state().stuck(id)) continue;
    // Who comes back because one method failed is asked by the next one then.
    const auto next = engine_->state().standing(id).next;
    if (lease.state != LeaseState::pausing && !(next && lease.state == LeaseState::resuming)) continue;
    const Bytes residue = next ? core::residue_of(engine_->state(), lease, *next) : lease.parking->residue;
    coming += counted(lease, device, reading) - residue;
    residues += residue;
  }
  return coming + std::min(residues, config_.rules.headroom) - in_headroom(device);
}

// -------------------------------------------------------------------------------- who yields

// All of them are needed, and together they are enough. Of a set that is gone through already, less is left each time.
void Oracle::check_plan(const core::State& state, const core::PreemptionPlan& preemption, const Seen& decided,
                        Time now) {
  const auto preemptor = leases_.find(preemption.preemptor);
  const auto& victims = preemption.victims;
  if (preemptor == leases_.end()) return;
  const bool ends = std::ranges::any_of(victims, [&](const core::Victim& victim) {
    const auto its = leases_.find(victim.lease);
    return victim.ends && (its == leases_.end() || its->second.tier >= preemptor->second.tier);
  });
  verdict_.expect(preemption.cause != core::Cause::slice || !ends, "turn-ends-somebody",
                  [&] { return "for the time slice of " + to_string(preemption.preemptor); });
  const Lease& its = preemptor->second;
  const std::size_t wanted = its.waits_in_place() ? its.devices.size() : static_cast<std::size_t>(its.device_count);
  verdict_.expect(preemption.devices.size() == wanted, "room-by-halves", [&] {
    return fmt::format("{} wants {} devices, and has room made on {}", to_string(its.id), wanted,
                       preemption.devices.size());
  });
  if (preemption.cause == core::Cause::request || victims.empty()) return;
  struct Here {
    std::string device;
    const Reading* reading;
    Bytes lacks;  // once all who yield already have done so
  };
  std::vector<Here> everywhere;
  for (const std::string& device : preemption.devices) {
    const Reading* reading = known(device, now);
    if (reading == nullptr) return;
    const Bytes free = capacity(*reading) - claimed(device, *reading);
    if (free != state.effective_free(state.devices().at(device), config_.rules, now)) return;
    everywhere.push_back({device, reading, state.need(its, device) - free - coming_free(device, *reading, victims)});
  }
  // At least; at most, where the headroom takes what it keeps.
  const auto gain = [&](const core::Victim& victim, const Here& here, bool most = false) {
    const Lease& lease = leases_.at(victim.lease);
    if (!is_on(lease, here.device)) return Bytes{};
    // The very step that chose them asked the first, and may have ended several.
    if (lease.ended()) return settling(lease, here.device, *here.reading);
    const Bytes all = counted(lease, here.device, *here.reading);
    if (victim.ends) return all;
    const Bytes residue = core::residue_of(state, lease, victim.method);  // more of one with many processes
    return all - residue + (most ? std::min(residue, config_.rules.headroom) : Bytes{});
  };
  // All but one of them; none: all.
  const auto enough = [&](LeaseId but) {
    return std::all_of(everywhere.begin(), everywhere.end(), [&](const Here& here) {
      Bytes sum;
      for (const core::Victim& victim : victims)
        if (victim.lease != but) sum += gain(victim, here, !but);
      return sum >= here.lacks;
    });
  };
  if (!decided.again && preemption.cause == core::Cause::tier) check_host_room(preemption);
  const auto says = [&] {
    std::string text = "for " + to_string(preemption.preemptor) + " would yield";
    for (const Here& here : everywhere) {
      text += fmt::format("; on {}, where {} is lacking:", here.device, format_size(here.lacks));
      for (const core::Victim& victim : victims)
        text += fmt::format(" {} with {}", to_string(victim.lease), format_size(gain(victim, here)));
    }
    return text;
  };
  const bool by_slice = preemption.cause == core::Cause::slice;  // then they are chosen by what they have had
  // Who may be asked only since it was decided is found when the first has yielded, and all is decided anew.
  if (decided.again && !by_slice && everywhere.size() == 1 && now - lagged_at_ > decided_anew)
    check_cheapest(state, preemption, *everywhere.front().reading, everywhere.front().lacks, decided.since);
  if (decided.again) return;
  verdict_.expect(enough({}), "victims-too-few", says);
  if (by_slice) return;
  // Who makes room elsewhere was asked after these were chosen, and what it leaves here is looked at in the next step.
  const bool beside = std::ranges::any_of(asked_now_, [&](LeaseId id) {
    const bool chosen = std::ranges::find(victims, id, &core::Victim::lease) != victims.end();
    return !chosen &&
           std::ranges::any_of(everywhere, [&](const Here& here) { return is_on(leases_.at(id), here.device); });
  });
  if (beside) return;
  for (const core::Victim& victim : victims) verdict_.expect(!enough(victim.lease), "victim-for-nothing", says);
}

// What is surely left of the ledger to one user's leases while others have some, too.
Bytes Oracle::ledger_left() const {
  Bytes all;
  std::map<std::uint32_t, Bytes> of;
  for (const auto& [id, lease] : leases_) {
    if (lease.ended()) continue;
    const Bytes entry = lease.parking ? lease.parking->host_bytes : Bytes{};
    all += entry, of[lease.uid] += entry;
  }
  Bytes left = config_.rules.ledger_limit - all;
  const auto share = static_cast<double>(config_.rules.ledger_limit.count) * config_.rules.ledger_user_share;
  for (const auto& [uid, bytes] : of) left = std::min(left, Bytes{static_cast<std::int64_t>(share)} - bytes);
  return left;
}

// Each of them enters all that it holds when those before it have left there what they use: if the last is refused
// then, the first was parked for nothing.
void Oracle::check_host_room(const core::PreemptionPlan& preemption) {
  Bytes taken;
  for (const auto& [id, lease] : leases_) {
    if (!lease.parking || lease.ended()) continue;
    if (lease.state == LeaseState::pausing && !lease.parking->measured) return;  // nobody is asked before it is
    taken += lease.parking->host_bytes;
  }
  for (const core::Victim& victim : preemption.victims) {
    const Lease& lease = leases_.at(victim.lease);
    if (victim.ends || lease.state != LeaseState::active) continue;
    Bytes enters, stays;
    for (const std::string& device : lease.devices) {
      const Bytes used = seen_to_use(lease.id, device).value_or(Bytes{});
      enters += std::max(lease.reserved_each(), used), stays += used;
    }
    verdict_.expect(taken + enters <= config_.rules.ledger_limit, "beyond-ledger", [&] {
      return fmt::format("for {} would yield {} in the end, which enters {} where {} are taken",
                         to_string(preemption.preemptor), to_string(lease.id), format_size(enters), format_size(taken));
    });
    taken += stays;
  }
}

// Those are tried of whom there is no doubt that they could be asked, and could be when it was decided: programs of a
// lower tier that Sublet started, whose pauses never failed. What it costs them is what was learned of them.
void Oracle::check_cheapest(const core::State& state, const core::PreemptionPlan& preemption, const Reading& reading,
                            Bytes lacks, Time now) {
  struct Candidate {
    LeaseId lease;
    Bytes gain;
    Duration cost{};
    Bytes held;
  };
  const std::string& device = preemption.devices.front();
  const Lease& preemptor = leases_.at(preemption.preemptor);
  std::vector<Candidate> sure;
  for (const auto& [id, lease] : leases_) {
    if (!surely_yields(state, lease, device, preemptor.tier, now)) continue;
    Bytes bytes;
    for (const std::string& uuid : lease.devices) {
      const auto used = seen_to_use(id, uuid);
      if (!used) return;
      bytes += *used;
    }
    if (bytes == Bytes{}) continue;  // nothing of it could be parked yet
    const auto takes = [&, &lease = lease](core::Move move) {
      return state.costs().predict(lease.whose(), lease.devices, PauseMethod::driver, move, bytes).likely;
    };
    sure.push_back({id, counted(lease, device, reading) - core::residue_of(state, lease, PauseMethod::driver),
                    takes(core::Move::pause) + takes(core::Move::resume), core::held_by(state, lease)});
  }
  if (sure.size() > tried_by_force) return;
  // What was learned since may have changed what they cost.
  Duration cost{};
  for (const core::Victim& victim : preemption.victims) {
    const auto same = std::ranges::find(sure, victim.lease, &Candidate::lease);
    cost += same == sure.end() ? victim.cost : std::min(victim.cost, same->cost);
  }
  for (std::size_t set = 1; set < std::size_t{1} << sure.size(); ++set) {
    Candidate all;
    for (std::size_t i = 0; i < sure.size(); ++i)
      if ((set >> i & 1) != 0) all.gain += sure[i].gain, all.cost += sure[i].cost, all.held += sure[i].held;
    if (all.held > ledger_left()) continue;
    verdict_.expect(all.gain < lacks || all.cost >= cost, "dearer-than-needed", [&] {
      std::string text =
          fmt::format("{} that {} lacks on {} cost {}, and could cost {}; chosen:", format_size(lacks),
                      to_string(preemption.preemptor), device, format_duration(cost), format_duration(all.cost));
      for (const core::Victim& victim : preemption.victims) text += " " + to_string(victim.lease);
      text += "; instead of";
      for (std::size_t i = 0; i < sure.size(); ++i)
        if ((set >> i & 1) != 0) text += " " + to_string(sure[i].lease) + " with " + format_size(sure[i].gain);
      return text;
    });
  }
}

// Who has yielded on somebody's word does not come back into the room that it has made as long as those who are still
// to be asked for it could be, and would be enough without what this one takes again.
void Oracle::check_stays_out(const Lease& before, const Lease& lease, const store::Batch& batch) {
  const Time now = batch.now;
  const core::PauseCause& cause = before.parking->cause;
  const bool requested =
      cause.kind == core::PauseCauseKind::owner_preemption || cause.kind == core::PauseCauseKind::admin_preemption;
  if (!requested || lease.parking->then_stop) return;  // it is to end
  const auto preemptor = leases_.find(cause.preemptor);
  if (preemptor == leases_.end() || !waits(preemptor->second) || !preemptor->second.preemption_request) return;
  const auto made = plans_.find(preemptor->first);
  if (made == plans_.end() || made->second.victims.empty()) return;
  const core::State& state = engine_->state();
  const auto& word = *preemptor->second.preemption_request;
  // By now it is free elsewhere, or comes there by itself.
  const core::VictimPlan plan =
      core::plan_victims(state, config_.rules, core::PreemptionQuery{preemptor->second, word}, now);
  if (plan.found && plan.victims.empty() && plan.devices != made->second.devices) return;
  Bytes held;
  for (const LeaseId id : made->second.victims) {
    const Lease* victim = state.find(id);
    const bool reached = victim != nullptr && (word.any_user || word.uid == victim->uid);
    if (!reached || victim->state != LeaseState::active || victim->stop_requested) return;
    const bool resized = std::ranges::any_of(batch.reasons, [id](const core::Reason& reason) {
      return reason.lease == id && core::code(reason) == "resized";
    });
    if (resized) return;  // all is decided anew
    if (state.standing(id).ineligible_until > now) return;
    if (!core::way_to_yield(state, config_.rules, *victim, preemptor->second.uid, now).parks()) return;
    held += core::held_by(state, *victim);
  }
  if (held > ledger_left()) return;
  bool in_its_way = false;
  for (const std::string& device : made->second.devices) {
    const core::PreemptionPlan* preemption = state.plan_on(device);
    if (known(device, now) == nullptr || (preemption != nullptr && preemption->preemptor != preemptor->first)) return;
    const core::Device& its = state.devices().at(device);
    Bytes room = state.effective_free(its, config_.rules, now) - config_.rules.headroom;
    if (is_on(lease, device)) {
      in_its_way |= state.effective_free(its, config_.rules, now) < state.need(preemptor->second, device);
      room += state.charged(lease, device) - before.parking->residue;
    }
    for (const LeaseId id : made->second.victims) {
      const Lease& victim = *state.find(id);
      const auto method = core::pause_method_of(state, victim);
      if (method && is_on(victim, device))
        room += state.charged(victim, device) - core::residue_of(state, victim, *method);
    }
    if (room < state.need(preemptor->second, device)) return;
  }
  verdict_.expect(!in_its_way, "back-before-the-word", [&] {
    return fmt::format("{} has yielded for {}, and comes back while others are still to be asked for it",
                       to_string(lease.id), to_string(preemptor->first));
  });
}

// Looked at when it has changed: what is being made is decided anew at each change. What it costs is looked at a step
// later: somebody else may have been given room by that very step.
void Oracle::check_plans(const core::State& state, Time now) {
  if (plans_.empty() && state.plans().empty()) return;
  std::map<LeaseId, Seen> seen;
  for (const core::PreemptionPlan& preemption : state.plans()) {
    check_begun(preemption, now);
    Seen& its = seen[preemption.preemptor];
    for (const core::Victim& victim : preemption.victims) its.victims.push_back(victim.lease);
    its.beneficiaries = preemption.beneficiaries;
    its.devices = preemption.devices;
    const auto before = plans_.find(preemption.preemptor);
    const bool same = before != plans_.end() && before->second.victims == its.victims;
    its.again = same;
    its.since = same ? before->second.since : now;
    if (!same || !before->second.again) check_plan(state, preemption, its, now);
    if (!same && preemption.by_slice && preemption.devices.size() == 1)
      check_leaves(preemption, preemption.devices.front(), now);
  }
  plans_ = std::move(seen);
  const auto comes_in = [this](LeaseId id) {
    return std::ranges::any_of(plans_, [id](const auto& preemption) {
      return preemption.first == id ||
             std::ranges::find(preemption.second.beneficiaries, id) != preemption.second.beneficiaries.end();
    });
  };
  const auto is_under_way = [this](LeaseId id) {
    const auto lease = leases_.find(id);
    return lease != leases_.end() && is_moved(lease->second);
  };
  // Who is on the way back because one method failed is asked by the next.
  std::erase_if(slices_begun_, [&](const auto& begun) {
    return !comes_in(begun.first) && std::ranges::none_of(begun.second, is_under_way);
  });
}

// -------------------------------------------------------------------------------- unleased processes

// Who could come back if nobody without a lease held the room is told who does. Once for each reading: nothing else
// says anything new of unleased processes.
void Oracle::check_unleased_named(const core::State& state, Time now) {
  for (const LeaseId id : state.away()) {
    const auto found = leases_.find(id);
    if (found == leases_.end() || !found->second.waits_in_place() || found->second.devices.size() != 1) continue;
    const Reading* reading = known(found->second.devices.front(), now);
    if (reading == nullptr || !reading->of.contains(LeaseId{})) continue;
    if (Time& last = named_at_[id]; last < reading->began) last = reading->began;
    else continue;
    check_unleased_named(state, found->second, *reading, now);
  }
}

void Oracle::check_unleased_named(const core::State& state, const Lease& lease, const Reading& reading, Time now) {
  const std::string& device = lease.devices.front();
  Bytes leases, unleased_processes;
  for (const auto& [id, other] : leases_) {
    if (id == lease.id || !is_on(other, device)) continue;
    if (other.reserves()) leases += counted(other, device, reading);
    else if (other.ended()) leases += settling(other, device, reading);
  }
  // Those that are really without a lease, and were seen.
  for (const auto& [ref, process] : world_.processes())
    if (!process.lease) unleased_processes += process.held[*world_.card_of(device)];
  unleased_processes = std::min(unleased_processes, reading.of.at(LeaseId{}));
  const auto asked = asked_.find({lease.id, device});
  const Bytes held = std::max(lease.vram, asked == asked_.end() ? Bytes{} : asked->second) + reading.used_by(lease.id);
  const Bytes most = std::max(held, state.charge(lease.id, device).needed);  // what it took while it was paused, too
  const Bytes all = capacity(reading);
  if (leases + most > all || leases + lease.vram + unleased_processes - in_headroom(device) <= all) return;
  // Who has ended and whose program may live is charged by the engine for longer than it is seen from here.
  const Bytes free = state.effective_free(state.devices().at(device), config_.rules, now);
  if (free != all - claimed(device, reading)) return;
  const auto blocked = core::what_blocks(state, config_.rules, lease, now);
  const bool named = blocked && blocked->code == Code::ResumeBlocked && !blocked->unleased_processes.empty() &&
                     blocked->text.starts_with("ResumeBlocked: pid ");
  verdict_.expect(named, "unleased-unnamed", [&] {
    return fmt::format("{} waits to come back, {} on {} are without a lease, and it needs {}: {}", to_string(lease.id),
                       format_size(unleased_processes), device, format_size(lease.vram), blocked ? blocked->text : "");
  });
}

}  // namespace sublet::sim
