// SPDX-License-Identifier: Apache-2.0
// Checks of memory: readings, promises since then, and that both fit together whenever a lease is given memory or its
// program is restored.
#include "gpu/snapshot.h"
#include "oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using core::LeaseState;

// ------------------------------------------------------------------------------------------------ readings

void Oracle::reading(const gpu::GpuSnapshot& snapshot, Time began, const std::function<LeaseId(ProcessRef)>& lease_of) {
  checked_.reset();
  read(gpu::judge(snapshot), began, lease_of);
}

// Bytes that appeared since the last reading, beyond what listed processes took, and that leases which are being
// restored there may have.
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
    const Bytes all = std::min(lease.vram, core::to_restore(engine_->state(), lease, device).all);
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
  for (const auto& [uuid, reading] : readings_) {
    unread_.insert(uuid);
    const auto its = engine_->state().devices.by_uuid.find(uuid);
    if (its != engine_->state().devices.by_uuid.end() && its->second.read_at == reading.began)
      believed_[uuid] = reading;
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
    for (const auto& [id, lease] : leases_)
      if (const Bytes unseen = world_.unseen(id, *world_.card_of(device.uuid)); unseen > Bytes{})
        reading.unseen[id] = unseen;
    readings_[device.uuid] = std::move(reading);
    unread_.erase(device.uuid);
  }
  // Bytes of a lease that ended before this reading began are measured by it.
  std::erase_if(ends_, [&](const auto& entry) {
    const End& end = entry.second;
    return std::all_of(end.devices.begin(), end.devices.end(), [&](const std::string& uuid) {
      const auto found = readings_.find(uuid);
      return found != readings_.end() && !unread_.contains(uuid) && found->second.began >= end.at;
    });
  });
}

// By the newest reading, if the engine took it too.
std::optional<Bytes> Oracle::seen_to_use(LeaseId lease, const std::string& device) const {
  const auto found = readings_.find(device);
  const auto its = engine_->state().devices.by_uuid.find(device);
  if (found == readings_.end() || its == engine_->state().devices.by_uuid.end()) return std::nullopt;
  if (its->second.read_at != found->second.began) return std::nullopt;
  return found->second.used_by(lease);
}

// The newest reading, if it is credible, recent, and the one that the engine goes by.
const Oracle::Reading* Oracle::known(const std::string& device, Time now) const {
  const auto found = readings_.find(device);
  const auto its = engine_->state().devices.by_uuid.find(device);
  if (found == readings_.end() || its == engine_->state().devices.by_uuid.end() || unread_.contains(device))
    return nullptr;
  const bool same = its->second.read_at == found->second.began;
  return same && core::is_known(engine_->state(), its->second, config_.rules, now) ? &found->second : nullptr;
}

// ------------------------------------------------------------------------------------------------ promises

// A lease resumes with what its processes yielded, or all that it was promised, and with what they took since.
void Oracle::follow_return(const Lease* before, const Lease& lease) {
  const LeaseState was = before == nullptr ? LeaseState::queued : before->state;
  for (const std::string& uuid : lease.devices) {
    const OnDevice here{lease.id, uuid};
    const Bytes uses = seen_to_use(lease.id, uuid).value_or(Bytes{});
    if (lease.state == LeaseState::pausing && was != LeaseState::pausing) {
      asked_at_[lease.id] = lease.parking->since;
      if (was != LeaseState::resuming) asked_[here] = {};  // else the next method follows the one before
      asked_[here] = std::max(asked_[here], uses);
      coming_[here] = std::max(lease.vram, asked_[here]);
    }
    if (!is_moving(lease)) coming_.erase(here);
    if (lease.state != LeaseState::resuming || was != LeaseState::paused) continue;
    const Bytes since = uses > lease.parking->residue ? uses - lease.parking->residue : Bytes{};
    coming_[here] = std::max(lease.vram, asked_[here]) + since;
  }
}

// A decision that was not stored has not happened. Everything else holds over a restart.
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
    return lease == nullptr || !is_moving(*lease) || asked_at_[lease->id] != lease->parking->since;
  });
  for (auto& [key, coming] : coming_)
    if (const Lease& lease = *durable(key.first); lease.state == LeaseState::pausing)
      coming = std::max(lease.vram, asked_[key]);
}

// Bytes of the device that are taken, by what was read and what was promised since.
Bytes Oracle::claims(const std::string& device, const Reading& reading) const {
  Bytes leases, seen, present;
  std::vector<LeaseId> counted;
  const auto is_counted = [&counted](LeaseId id) {
    return std::find(counted.begin(), counted.end(), id) != counted.end();
  };
  const auto count = [&](LeaseId id, Bytes promised) {
    const Bytes uses = reading.used_by(id);
    leases += std::max(promised, uses);
    seen += uses;
    counted.push_back(id);
    return uses;
  };
  std::vector<const Lease*> here;
  for (const auto& [id, lease] : leases_)
    if (lease.reserves() && is_on(lease, device)) here.push_back(&lease);
  for (const Lease* lease : here) present += lease->parked() ? Bytes{} : lease->reserved_each();
  for (const Lease* lease : here) {
    // A lease that has the device to itself may resume with more than its size: nobody else is promised any of it.
    const bool alone = present - lease->reserved_each() <= config_.rules.headroom;
    const auto coming = alone ? coming_.end() : coming_.find({lease->id, device});
    const Bytes uses =
        count(lease->id, std::max(lease->reserved_each(), coming == coming_.end() ? Bytes{} : coming->second));
    seen += std::max(lease->kept_unseen() - uses, Bytes{});  // the driver lists no bytes that it keeps itself
  }
  for (const auto& [id, end] : ends_) {
    const bool on_it = std::find(end.devices.begin(), end.devices.end(), device) != end.devices.end();
    if (end.at > reading.began && !is_counted(id) && on_it) count(id, end.each);
  }
  Bytes others;
  for (const auto& [id, used] : reading.of)
    if (!is_counted(id)) others += used;
  return leases + std::max(others, reading.used - seen - reading.arrived);
}

Bytes Oracle::residues(const std::string& device) const {
  Bytes sum;
  for (const auto& [id, lease] : leases_)
    if (lease.parked() && is_on(lease, device)) sum += lease.parking->residue;
  return sum;
}

// Residues of parked leases lie in the headroom. A lease that is granted in the step in which others resume was
// granted while those were still parked. The first decision after a standstill goes by the reading before.
void Oracle::check_promise(const Lease& lease, Time now, bool wakes) {
  for (const std::string& uuid : lease.devices) {
    const auto found = readings_.find(uuid);
    const auto its = engine_->state().devices.by_uuid.find(uuid);
    const bool listed = its != engine_->state().devices.by_uuid.end();
    // A program gets its resume order without the device if that is to be forgotten, or if the program is to end and
    // belongs to no keeper.
    const bool gone = listed && its->second.missing_since;
    const bool ends = lease.parking && lease.parking->then_stop && !lease.owner.keeper;
    if (lease.state == LeaseState::resuming && gone &&
        (ends || now - *its->second.missing_since >= config_.rules.forget_after))
      continue;
    const bool older = wakes && found != readings_.end() && listed && its->second.read_at &&
                       *its->second.read_at < found->second.began;
    const bool known = older ? now - *its->second.read_at <= config_.rules.max_age
                             : found != readings_.end() && !unread_.contains(uuid) &&
                                   now - found->second.began <= config_.rules.max_age;
    verdict_.expect(known, "granted-on-a-guess", [&, &uuid = uuid] {
      return fmt::format("{} is given memory on {}, of which nothing is known", to_string(lease.id), uuid);
    });
    if (!known) return;
    if (older) continue;
    const Reading& reading = found->second;
    const Bytes all = reading.total - reading.driver_reserved - config_.rules.headroom, taken = claims(uuid, reading);
    const auto kept = kept_.find(uuid);
    const Bytes may = std::min(config_.rules.headroom, residues(uuid) + (kept == kept_.end() ? Bytes{} : kept->second));
    verdict_.expect(taken <= all + may, "promised-twice", [&, &uuid = uuid] {
      return fmt::format("{} is given {} on {}: {} of {} are taken, and parked leases keep {} of the headroom",
                         to_string(lease.id), format_size(lease.reserved_each()), uuid, format_size(taken),
                         format_size(all), format_size(may));
    });
  }
}

// A restore without free memory is the last one that is tried. So none begins while others are seen to have taken the
// memory, or could take it at any moment, unless the memory is secured first.
void Oracle::restores(LeaseId id, const std::vector<pause::Room>& room) {
  const auto lease = leases_.find(id);
  if (engine_ == nullptr || lease == leases_.end()) return;
  const auto& parking = lease->second.parking;
  if (parking && parking->measured && parking->host_bytes <= Bytes{}) return;  // measured to have parked nothing
  for (const std::string& uuid : lease->second.devices) {
    const std::size_t card = *world_.card_of(uuid);
    // Bytes beyond its size that were not listed when it was asked are known to nobody.
    const auto asked = asked_.find({id, uuid});
    const Bytes known_of = std::max(lease->second.vram, asked == asked_.end() ? Bytes{} : asked->second);
    const Bytes parked = std::min(world_.parked_by(id, card), known_of);
    const Reading* reading = known(uuid, engine_->now());
    if (parked <= Bytes{} || reading == nullptr) continue;
    const bool sure = std::any_of(room.begin(), room.end(), [&uuid = uuid](const pause::Room& its) {
      return its.uuid == uuid && its.all > Bytes{};
    });
    const Bytes free = reading->total - reading->driver_reserved - reading->used;
    const bool shared = reading->used_by({}) > Bytes{};
    verdict_.expect(sure || (free >= parked && !shared), "restored-while-blocked", [&, &uuid = uuid] {
      return fmt::format("{} is to get {} back on {}, {} are seen to be free there{}", to_string(id),
                         format_size(parked), uuid, format_size(free), shared ? ", and unleased processes use it" : "");
    });
  }
}

}  // namespace sublet::sim
