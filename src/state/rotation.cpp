// SPDX-License-Identifier: Apache-2.0
#include "state/rotation.h"

#include "state/turns.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace sublet::core {
namespace {

// A branch of the tree of those that share: a tenant, a user or, without an account, a lease.
struct Branch {
  std::map<AccountId, Branch> below = {};
  std::vector<const Lease*> leases = {};
  double bytes = 0;  // that it holds on average while it has the devices
};

// The parts of the time of the branches below this one: by weight, and less for a branch that holds more.
std::map<AccountId, double> parts_below(const State& state, const Branch& its) {
  std::map<AccountId, double> parts;
  double sum = 0;
  for (const auto& [id, branch] : its.below)
    sum += parts[id] = static_cast<double>(weight_of(account(state, id))) / std::max(branch.bytes, 1.0);
  for (auto& [id, part] : parts) part /= sum;
  return parts;
}

void count_bytes(const State& state, Branch& its) {
  for (const Lease* lease : its.leases)
    its.bytes += static_cast<double>(lease->vram.count * lease->device_count) / static_cast<double>(its.leases.size());
  for (auto& [id, branch] : its.below) count_bytes(state, branch);
  for (const auto& [id, part] : parts_below(state, its)) its.bytes += part * its.below.at(id).bytes;
}

double part_below(const State& state, const Branch& its, AccountId wanted) {
  double sum = 0;
  for (const auto& [id, part] : parts_below(state, its))
    sum += part * (id == wanted ? 1 : part_below(state, its.below.at(id), wanted));
  return sum;
}

// The leases of a plain rotation, as its slices pass. Each has a branch of its own, so that tenants alone order them.
class Ahead {
 public:
  Ahead(const State& state, const Rotation& rotation, Time now)
      : slice_(rotation.slice), at_(now), turns_(state, rotation.tier, rotation.devices, now) {
    for (const LeaseId id : rotation.leases) {
      const Lease* lease = find(state, id);
      if (lease == nullptr || lease->ended()) continue;
      const bool has = lease->state != LeaseState::paused && lease->state != LeaseState::queued;
      members_.push_back({lease, has && lease->state != LeaseState::pausing});
      turns_.add(*lease);
    }
    turns_.put_in_order(now, slice_);
  }

  bool has_at_most(LeaseId lease, std::int64_t slices) const { return turns_.has_at_most(lease, slices); }

  // The lease whose slice is the present one, which lasts for so long; null: none.
  const Lease* present(Duration lasts) {
    const auto holder = std::ranges::find_if(members_, &Member::has);
    return holder == members_.end() ? nullptr : serve(*holder, lasts);
  }
  // Null: there are no leases.
  const Lease* next() {
    if (members_.empty()) return nullptr;
    turns_.put_in_order(at_, slice_);
    const auto comes_first = [this](const Member& a, const Member& b) {
      return turns_.compare(a.lease->id, b.lease->id) < 0;
    };
    return serve(*std::ranges::min_element(members_, comes_first), slice_);
  }

 private:
  struct Member {
    const Lease* lease;
    bool has;
  };

  const Lease* serve(Member& member, Duration lasts) {
    at_ = at_ + lasts;
    turns_.serve(*member.lease, lasts, at_);
    for (Member& other : members_) other.has = false;
    return member.lease;
  }

  Duration slice_;
  Time at_;
  Turns turns_;
  std::vector<Member> members_ = {};
};

}  // namespace

const Rotation* rotation_with(const State& state, LeaseId lease) {
  for (const Rotation& rotation : state.preemption.rotations)
    if (std::ranges::find(rotation.leases, lease) != rotation.leases.end()) return &rotation;
  return nullptr;
}

double part_of_time(const State& state, const Rotation& rotation, std::string_view tenant) {
  const auto wanted = state.tenants.ids.find(std::string(tenant));
  if (wanted == state.tenants.ids.end()) return 0;
  Branch top;
  for (const LeaseId id : rotation.leases) {
    const Lease* lease = find(state, id);
    if (lease == nullptr || lease->ended()) continue;
    std::vector<AccountId> path;
    for (AccountId above = account_of(state, id); above != 0; above = account(state, above).parent)
      path.insert(path.begin(), above);
    Branch* branch = &top;
    for (const AccountId below : path) branch = &branch->below[below];
    branch->leases.push_back(lease);
  }
  count_bytes(state, top);
  return part_below(state, top, wanted->second);
}

static Duration present_slice(const State& state, const Rotation& rotation, Time now) {
  for (const std::string& uuid : rotation.devices)
    if (const auto next = state.preemption.slices.find(uuid); next != state.preemption.slices.end())
      if (next->second.tier == rotation.tier && next->second.fixed) return std::max(next->second.at - now, Duration{});
  return rotation.longest_slice;
}

static AccountId top_of(const State& state, LeaseId lease) {
  AccountId id = account_of(state, lease);
  while (id != 0 && account(state, id).parent != 0) id = account(state, id).parent;
  return id;
}

// True if all leases have the same size, each has a branch of its own at the top of the tree, and all branches have the
// same weight. Elsewhere newcomers beside a branch stand behind it only until the next lease of the branch had its time
// slice, and a smaller newcomer changes the order. Other leases on the devices prolong the switches.
static bool is_plain(const State& state, const Rotation& rotation) {
  std::set<AccountId> tops;
  for (const LeaseId id : rotation.leases) {
    const AccountId top = top_of(state, id);
    if (top == 0 || !tops.insert(top).second) return false;
    if (weight_of(account(state, top)) != weight_of(account(state, *tops.begin()))) return false;
    const Lease *lease = find(state, id), *first = find(state, rotation.leases.front());
    if (lease == nullptr || lease->vram != first->vram || lease->device_count != first->device_count) return false;
  }
  return std::ranges::all_of(rotation.devices, [&](const std::string& uuid) {
    const auto device = state.devices.by_uuid.find(uuid);
    return device != state.devices.by_uuid.end() && std::ranges::all_of(device->second.leases, [&](LeaseId id) {
             return std::ranges::find(rotation.leases, id) != rotation.leases.end();
           });
  });
}

// The cost of looking ahead for all waiters grows with the cube of their number.
constexpr std::size_t most_looked_ahead = 16;

std::optional<TurnsBefore> turns_before(const State& state, const Rotation& rotation, LeaseId waiter, Time now) {
  if (rotation.leases.size() > most_looked_ahead || !is_plain(state, rotation)) return std::nullopt;
  Ahead ahead(state, rotation, now);
  // A newcomer has had one slice more than the least of those that wait.
  if (!ahead.has_at_most(waiter, 1)) return std::nullopt;
  TurnsBefore turns{.present = present_slice(state, rotation, now)};
  turns.is_switch = ahead.present(turns.present) == nullptr;
  turns.slices = turns.is_switch ? 0 : 1;
  const int most = 4 * static_cast<int>(rotation.leases.size()) + 4;
  for (; turns.slices <= most; ++turns.slices) {
    const Lease* next = ahead.next();
    if (next == nullptr) return std::nullopt;
    if (next->id == waiter) return turns;
  }
  return std::nullopt;
}

}  // namespace sublet::core
