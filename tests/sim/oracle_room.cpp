// SPDX-License-Identifier: Apache-2.0
// What is checked of who yields for whom: nobody does for nothing, and an outsider that has taken the room is named.
// The sums are the oracle's own; where the engine, for its own reasons, promises less than they allow, nothing is said.
#include "core/blocked.h"
#include "oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace sublet::sim {

using core::LeaseState;
using core::PauseMethod;
using namespace std::chrono_literals;

namespace {

constexpr Bytes driver_residue = 64 * MiB;  // at most, of what is parked by the driver

bool is_on(const core::Lease& lease, const std::string& device) {
  return std::find(lease.devices.begin(), lease.devices.end(), device) != lease.devices.end();
}

}  // namespace

// What it is counted with on one of its devices, by what was read and what was promised.
Bytes Oracle::counted(const Lease& lease, const std::string& device, const Reading& reading) const {
  const auto used = reading.of.find(lease.id);
  const auto coming = coming_.find({lease.id, device});
  Bytes bytes = used == reading.of.end() ? Bytes{} : used->second;
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

// What of one that has ended is still to be measured gone.
Bytes Oracle::settling(const Lease& ended, const std::string& device, const Reading& reading) const {
  const auto end = ends_.find(ended.id);
  const bool later = end != ends_.end() && end->second.at > reading.began;
  return std::max(later ? end->second.each : Bytes{}, counted(ended, device, reading));
}

// From those who have ended, and from those who yield already and are expected to.
Bytes Oracle::coming_free(const std::string& device, const Reading& reading) const {
  Bytes coming;
  for (const auto& [id, lease] : leases_) {
    if (!is_on(lease, device)) continue;
    // What is given up, with a card that was lost, say, is not waited for; nor is it free while it is listed.
    if (lease.ended() && engine_->state().charge(id, device).settling) coming += settling(lease, device, reading);
    if (lease.state == LeaseState::pausing && !engine_->state().stuck(id))
      coming += counted(lease, device, reading) - lease.parking->residue;
  }
  return coming;
}

// -------------------------------------------------------------------------------- who yields

// All of them are needed, and together they are enough. Of a set that is gone through already, less is left each time.
void Oracle::check_making(const core::State& state, const core::Making& making, Time now) {
  const auto asker = leases_.find(making.asker);
  const auto yields = [this](const core::Victim& victim) {  // asked by the very step that chose it
    return leases_.at(victim.lease).state == LeaseState::pausing;
  };
  const auto& victims = making.victims;
  if (asker == leases_.end() || making.ground != core::Ground::tier || victims.empty()) return;
  if (std::any_of(victims.begin(), victims.end(), yields)) return;
  struct Here {
    std::string device;
    const Reading* reading;
    Bytes lacks;  // once all who yield already have done so
  };
  std::vector<Here> everywhere;
  for (const std::string& device : making.devices) {
    const Reading* reading = known(device, now);
    if (reading == nullptr) return;
    const Bytes free = capacity(*reading) - claimed(device, *reading);
    if (free != state.effective_free(state.devices().at(device), config_.rules, now)) return;
    everywhere.push_back({device, reading, state.need(asker->second, device) - free - coming_free(device, *reading)});
  }
  const auto gain = [&](const core::Victim& victim, const Here& here) {
    const Lease& lease = leases_.at(victim.lease);
    if (!is_on(lease, here.device)) return Bytes{};
    const Bytes all = counted(lease, here.device, *here.reading);
    if (victim.ends) return all;
    const bool declared = victim.method == PauseMethod::cooperative && lease.cooperation;
    return all - std::min(declared ? lease.cooperation->residue : driver_residue, lease.vram);
  };
  // All but one of them; none: all.
  const auto enough = [&](LeaseId but) {
    return std::all_of(everywhere.begin(), everywhere.end(), [&](const Here& here) {
      Bytes sum;
      for (const core::Victim& victim : victims)
        if (victim.lease != but) sum += gain(victim, here);
      return sum >= here.lacks;
    });
  };
  const auto says = [&] {
    std::string text = "for " + to_string(making.asker) + " would yield";
    for (const Here& here : everywhere) {
      text += fmt::format("; on {}, where {} is lacking:", here.device, format_size(here.lacks));
      for (const core::Victim& victim : victims)
        text += fmt::format(" {} with {}", to_string(victim.lease), format_size(gain(victim, here)));
    }
    return text;
  };
  verdict_.expect(enough({}), "victims-too-few", says);
  for (const core::Victim& victim : victims) verdict_.expect(!enough(victim.lease), "victim-for-nothing", says);
}

// Looked at when it has changed: what is being made is decided anew at each change.
void Oracle::check_makings(const core::State& state, Time now) {
  if (makings_.empty() && state.makings().empty()) return;
  std::map<LeaseId, std::vector<LeaseId>> seen;
  for (const core::Making& making : state.makings()) {
    std::vector<LeaseId>& victims = seen[making.asker];
    for (const core::Victim& victim : making.victims) victims.push_back(victim.lease);
    const auto before = makings_.find(making.asker);
    if (before == makings_.end() || before->second != victims) check_making(state, making, now);
  }
  makings_ = std::move(seen);
}

// -------------------------------------------------------------------------------- outsiders

// Who could come back if nobody under no lease held the room is told who does. Once for each reading: nothing else says
// anything new of outsiders.
void Oracle::check_outsiders_named(const core::State& state, Time now) {
  for (const LeaseId id : state.away()) {
    const auto found = leases_.find(id);
    if (found == leases_.end() || !found->second.waits_in_place() || found->second.devices.size() != 1) continue;
    const Reading* reading = known(found->second.devices.front(), now);
    if (reading == nullptr || !reading->of.contains(LeaseId{})) continue;
    if (Time& last = named_at_[id]; last < reading->began) last = reading->began;
    else continue;
    check_outsiders_named(state, found->second, *reading, now);
  }
}

void Oracle::check_outsiders_named(const core::State& state, const Lease& lease, const Reading& reading, Time now) {
  const std::string& device = lease.devices.front();
  Bytes leases, outsiders;
  for (const auto& [id, other] : leases_) {
    if (id == lease.id || !is_on(other, device)) continue;
    if (other.reserves()) leases += counted(other, device, reading);
    else if (other.ended()) leases += settling(other, device, reading);
  }
  // Those that are really under no lease, and were seen.
  for (const auto& [ref, process] : world_.processes())
    if (!process.lease) outsiders += process.held[*world_.card_of(device)];
  outsiders = std::min(outsiders, reading.of.at(LeaseId{}));
  const auto asked = asked_.find({lease.id, device});
  const auto uses = reading.of.find(lease.id);
  const Bytes held = std::max(lease.vram, asked == asked_.end() ? Bytes{} : asked->second) +
                     (uses == reading.of.end() ? Bytes{} : uses->second);
  const Bytes most = std::max(held, state.charge(lease.id, device).needed);  // what it took while it was paused, too
  const Bytes all = capacity(reading);
  if (leases + most > all || leases + lease.vram + outsiders <= all) return;
  // Who has ended and whose program may live is charged by the engine for longer than it is seen from here.
  const Bytes free = state.effective_free(state.devices().at(device), config_.rules, now);
  if (free != all - claimed(device, reading)) return;
  const auto blocked = core::blocked_by_outsiders(state, config_.rules, lease, now);
  const bool named = blocked && blocked->code == Code::ResumeBlocked && !blocked->outsiders.empty() &&
                     blocked->text.starts_with("ResumeBlocked: pid ");
  verdict_.expect(named, "outsiders-unnamed", [&] {
    return fmt::format("{} waits to come back, {} on {} are under no lease, and it needs {}: {}", to_string(lease.id),
                       format_size(outsiders), device, format_size(lease.vram), blocked ? blocked->text : "");
  });
}

}  // namespace sublet::sim
