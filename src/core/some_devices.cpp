// SPDX-License-Identifier: Apache-2.0
#include "core/some_devices.h"

#include "placement/placement.h"
#include "state/nominations.h"

#include <algorithm>
#include <climits>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

namespace sublet::core {
namespace {

using placement::Policy;

// So many devices with different free memory are compared, the fullest first.
constexpr std::size_t compared = 32;

struct Asked {
  const Step& step;
  const QueueKey& key;
  const Lease& lease;
  const Nominations* held;

  bool fits(const DeviceFree& room) const {
    return may_use(lease, room.device) && allowance(key, lease, room, held) >= lease.vram;
  }
};

std::vector<const DeviceFree*> fitting_of_named(const Asked& asked, std::size_t most) {
  std::vector<const DeviceFree*> found;
  for (const std::string& uuid : asked.lease.wanted_devices) {
    const auto device = asked.step.state.devices.by_uuid.find(uuid);
    if (device == asked.step.state.devices.by_uuid.end() || !device->second.indexed.room) continue;
    const DeviceFree& room = *device->second.indexed.room;
    if (room.free >= asked.lease.vram && asked.fits(room)) found.push_back(&room);
  }
  std::ranges::sort(found, [](const DeviceFree* a, const DeviceFree* b) { return *a < *b; });
  if (found.size() > most) found.resize(most);
  return found;
}

// Devices where all of it fits, the fullest first, and of those with the same free memory at least `alike`.
std::vector<const DeviceFree*> fitting(const Asked& asked, std::size_t alike, std::size_t most) {
  const auto& by_free = asked.step.state.devices.by_free;
  if (!asked.lease.wanted_devices.empty()) return fitting_of_named(asked, most);
  std::vector<const DeviceFree*> found;
  std::size_t same = 0;
  Bytes last{-1};
  for (auto room = by_free.lower_bound({asked.lease.vram, INT_MIN, {}, 0}); room != by_free.end();) {
    if (found.size() == most) break;
    if (std::exchange(last, room->free) != room->free) same = 0;
    if (same == alike) {
      room = by_free.upper_bound({room->free, INT_MAX, {}, 0});
      continue;
    }
    if (asked.fits(*room)) found.push_back(&*room), ++same;
    ++room;
  }
  return found;
}

// The devices where all of it fits, the freest first.
std::vector<const DeviceFree*> freest(const Asked& asked, std::size_t count) {
  const auto& by_free = asked.step.state.devices.by_free;
  std::vector<const DeviceFree*> found;
  for (auto room = by_free.rbegin(); room != by_free.rend() && found.size() < count; ++room) {
    if (room->free < asked.lease.vram) break;
    if (asked.fits(*room)) found.push_back(&*room);
  }
  return found;
}

// In bytes, so that devices of different sizes compare.
double loss_on(const Asked& asked, const DeviceFree& room) {
  return placement::loss(room.free.count, asked.lease.vram.count, 1, asked.step.state.learned.requests.mix());
}

// The one device that the policy prefers; null: it fits on none.
const DeviceFree* best_one(const Asked& asked) {
  const Policy policy = asked.step.rules.placement;
  if (policy == Policy::spread) {
    const auto all = freest(asked, 1);
    return all.empty() ? nullptr : all.front();
  }
  const bool one_by_one = policy == Policy::random || policy == Policy::pack;
  const auto all = fitting(asked, one_by_one ? compared : 1, policy == Policy::best_fit ? 1 : compared);
  if (all.empty()) return nullptr;
  if (policy == Policy::random) return all[asked.lease.id.number * 0x9E3779B97F4A7C15 % all.size()];
  if (policy == Policy::pack) {
    const auto in_use = std::ranges::find_if(all, [&asked](const DeviceFree* room) {
      return !asked.step.state.devices.by_uuid.at(room->device).leases.empty();
    });
    return in_use == all.end() ? all.front() : *in_use;
  }
  if (policy == Policy::best_fit || all.size() == 1) return all.front();
  return *std::ranges::min_element(all, {}, [&asked](const DeviceFree* room) { return loss_on(asked, *room); });
}

std::vector<const DeviceFree*> best_of(const Asked& asked, std::size_t count) {
  if (count > 1)
    return asked.step.rules.placement == Policy::spread ? freest(asked, count) : fitting(asked, count, count);
  const DeviceFree* one = best_one(asked);
  return one == nullptr ? std::vector<const DeviceFree*>() : std::vector{one};
}

// Devices where less than all of it fits, the roomiest.
std::vector<std::pair<Bytes, const DeviceFree*>> roomiest(const Asked& asked, std::size_t count) {
  const auto& by_free = asked.step.state.devices.by_free;
  std::vector<std::pair<Bytes, const DeviceFree*>> chosen;
  const std::size_t enough = count + (asked.held == nullptr ? 0 : asked.held->devices());
  for (auto room = by_free.rbegin(); room != by_free.rend() && chosen.size() < enough; ++room) {
    if (!may_use(asked.lease, room->device)) continue;
    const Bytes allowed = allowance(asked.key, asked.lease, *room, asked.held);
    if (allowed >= asked.lease.least()) chosen.emplace_back(allowed, &*room);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (chosen.size() > count) chosen.resize(count);
  return chosen;
}

}  // namespace

Bytes allowance(const QueueKey& key, const Lease& lease, const DeviceFree& room, const Nominations* held) {
  return held == nullptr ? room.free : held->allowance(key, lease, room);
}

std::optional<Placement> place_on_some(const Step& step, const QueueKey& key, const Lease& lease,
                                       const Nominations* held) {
  const Asked asked{step, key, lease, held};
  const auto count = static_cast<std::size_t>(lease.device_count);
  std::vector<std::pair<Bytes, const DeviceFree*>> chosen;
  for (const DeviceFree* room : best_of(asked, count)) chosen.emplace_back(lease.vram, room);
  if (chosen.size() < count && lease.least() < lease.vram) chosen = roomiest(asked, count);
  if (chosen.size() < count) return std::nullopt;
  std::sort(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second->index, a.second->device) < std::tie(b.second->index, b.second->device);
  });
  Placement placement{lease.id, {}, lease.vram};
  for (const auto& [allowed, room] : chosen) {
    placement.devices.push_back(room->device);
    placement.vram = std::min(placement.vram, allowed);
  }
  return placement;
}

}  // namespace sublet::core
