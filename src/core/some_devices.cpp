// SPDX-License-Identifier: Apache-2.0
#include "core/some_devices.h"

#include "base/links.h"
#include "placement/placement.h"
#include "state/format.h"
#include "state/nominations.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace sublet::core {
namespace {

using placement::Policy;

// So many devices with different free memory are compared, the fullest first.
constexpr std::size_t compared = 32;
constexpr std::size_t most_linked = 256;  // so many devices of one machine may be linked
constexpr std::int64_t size_limit = std::int64_t{1} << 50;  // more bytes than a device has

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

bool is_in_use(const Asked& asked, const DeviceFree& room) {
  return !asked.step.state.devices.by_uuid.at(room.device).leases.empty();
}

// The policy as a number of bytes, so that devices of different sizes compare: the less the better.
double score_of(const Asked& asked, const DeviceFree& room) {
  const auto free = static_cast<double>(room.free.count);
  switch (asked.step.rules.placement) {
    case Policy::fragmentation:
      return placement::loss(room.free.count, asked.lease.vram.count, asked.step.state.learned.requests.mix());
    case Policy::spread: return -free;
    case Policy::pack: return is_in_use(asked, room) ? free : free + static_cast<double>(size_limit);
    case Policy::best_fit:
    case Policy::random: break;
  }
  return free;
}

// The devices that are compared. `alike`: so many with the same free memory, where they are alike to the policy.
std::vector<const DeviceFree*> candidates(const Asked& asked, std::size_t alike) {
  const Policy policy = asked.step.rules.placement;
  if (policy == Policy::spread) return freest(asked, alike);
  const bool one_by_one = policy == Policy::random || policy == Policy::pack;
  return fitting(asked, one_by_one ? compared : alike, policy == Policy::best_fit ? alike : compared);
}

const DeviceFree* best_among(const Asked& asked, const std::vector<const DeviceFree*>& all) {
  if (all.size() <= 1) return all.empty() ? nullptr : all.front();
  return *std::ranges::min_element(all, {}, [&asked](const DeviceFree* room) { return score_of(asked, *room); });
}

// The one device that the policy prefers; null: it fits on none.
const DeviceFree* best_one(const Asked& asked) {
  const auto all = candidates(asked, 1);
  if (asked.step.rules.placement == Policy::random && !all.empty())
    return all[asked.lease.id.number * 0x9E3779B97F4A7C15 % all.size()];
  return best_among(asked, all);
}

const DeviceReading& reading_of(const Asked& asked, const DeviceFree& room) {
  return asked.step.state.devices.by_uuid.at(room.device).reading;
}

// Several devices that the policy may give together.
struct Gang {
  std::vector<const DeviceFree*> devices;
  Linked linked = Linked::nothing;  // the best way in which all of them are linked
  double score = 0;                 // in bytes, the less the better
};

// A worse way of links counts as much as this part of the memory of each device. So links decide, unless a linked gang
// fragments much more.
constexpr double link_weight = 0.5;

Gang gang_of(const Asked& asked, std::vector<const DeviceFree*> devices, Linked linked) {
  Gang gang{std::move(devices), linked, 0};
  for (const DeviceFree* room : gang.devices)
    gang.score += score_of(asked, *room) + link_weight * static_cast<int>(linked) *
                                               static_cast<double>(reading_of(asked, *room).total.count);
  return gang;
}

// The gangs of `count` devices that are compared: for each group of linked devices that policy's first, and of all the
// policy's first. Empty: it fits on less.
std::vector<Gang> gangs(const Asked& asked, std::size_t count) {
  const bool is_spread = asked.step.rules.placement == Policy::spread;
  const std::size_t most = asked.step.state.devices.by_uuid.size() <= most_linked ? most_linked : count;
  std::vector<const DeviceFree*> all = is_spread ? freest(asked, most) : fitting(asked, most, most);
  if (all.size() < count) return {};
  std::vector<Gang> found;
  std::set<std::vector<const DeviceFree*>> seen;  // with a better way
  const auto add = [&](std::vector<const DeviceFree*> devices, Linked linked) {
    if (seen.insert(devices).second) found.push_back(gang_of(asked, std::move(devices), linked));
  };
  for (int way = 0; way < link_levels && most > count; ++way) {
    std::map<int, std::vector<const DeviceFree*>> groups;
    for (const DeviceFree* room : all) {
      const int group = reading_of(asked, *room).links.in(static_cast<Linked>(way));
      if (group < 0) continue;
      std::vector<const DeviceFree*>& members = groups[group];
      if (members.size() < count) members.push_back(room);
    }
    for (auto& [group, members] : groups)
      if (members.size() == count) add(std::move(members), static_cast<Linked>(way));
  }
  all.resize(count);
  add(std::move(all), Linked::nothing);
  std::ranges::stable_sort(found, {}, &Gang::score);
  return found;
}

std::vector<const DeviceFree*> best_of(const Asked& asked, std::size_t count) {
  if (count > 1) {
    auto all = gangs(asked, count);
    return all.empty() ? std::vector<const DeviceFree*>() : std::move(all.front().devices);
  }
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

namespace {

// The names of devices, in their order.
std::vector<std::string> names_of(const Asked& asked, const Gang& gang) {
  std::vector<std::string> uuids;
  for (const DeviceFree* room : gang.devices) uuids.push_back(room->device);
  return device_names(asked.step.state, sort_by_index(asked.step.state, std::move(uuids)));
}

// Sums over all devices of the gang.
ReasonArgs figures_of(const Asked& asked, const std::vector<const DeviceFree*>& devices, bool is_next) {
  double costs = 0;
  Bytes leaves;
  for (const DeviceFree* room : devices) {
    costs += placement::cost(room->free.count, asked.lease.vram.count, asked.step.state.learned.requests.mix());
    leaves += room->free - asked.lease.vram;
  }
  const auto lost = asked.step.rules.placement == Policy::fragmentation ? std::optional(Bytes{std::llround(costs)})
                                                                         : std::nullopt;
  return is_next ? args("next_costs", lost, "next_leaves", leaves) : args("costs", lost, "leaves", leaves);
}

ReasonArgs why_this_gang(const Asked& asked) {
  const auto count = static_cast<std::size_t>(asked.lease.device_count);
  const std::vector<Gang> all = gangs(asked, count);
  if (all.empty()) return {};
  const auto linked = [](const Gang& gang) -> std::string_view {
    return gang.linked == Linked::nothing ? "" : linked_names[static_cast<std::size_t>(gang.linked)];
  };
  ReasonArgs why = args("policy", to_string(asked.step.rules.placement), "linked", linked(all[0]));
  if (all.size() == 1) return why;
  why.add("next", names_of(asked, all[1]));
  why.add(figures_of(asked, all[0].devices, false));
  why.add(figures_of(asked, all[1].devices, true));
  why.add("next_linked", linked(all[1]));
  return why;
}

}  // namespace

ReasonArgs why_there(const Step& step, const QueueKey& key, const Lease& lease, const Nominations* held,
                     const Placement& placement) {
  const Asked asked{step, key, lease, held};
  const Policy policy = step.rules.placement;
  const bool has_choice = lease.certain_devices().empty() && step.state.devices.by_free.size() > 1;
  if (!has_choice || placement.vram < lease.vram) return {};
  if (placement.devices.size() > 1) return why_this_gang(asked);
  std::vector<const DeviceFree*> all = candidates(asked, 2);
  const auto chosen = std::ranges::find(all, placement.devices.front(), &DeviceFree::device);
  if (chosen == all.end()) return {};
  const DeviceFree* here = *chosen;
  all.erase(chosen);
  if (all.empty()) return args("only", true);
  if (policy == Policy::random) return args("policy", to_string(policy), "choices", all.size() + 1);
  const DeviceFree* next = best_among(asked, all);
  ReasonArgs why = args("policy", to_string(policy), "next", std::vector{reading_of(asked, *next).id()}, "used_before",
                        policy == Policy::pack && is_in_use(asked, *here) && !is_in_use(asked, *next));
  why.add(figures_of(asked, {here}, false));
  why.add(figures_of(asked, {next}, true));
  return why;
}

}  // namespace sublet::core
