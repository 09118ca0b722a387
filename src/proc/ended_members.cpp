// SPDX-License-Identifier: Apache-2.0
#include "proc/ended_members.h"

#include <algorithm>

namespace sublet::proc {
namespace {

constexpr std::uint64_t loose_ticks = 300;  // 3 s: accounting has whole seconds

}  // namespace

bool may_be_same(ProcessRef one, ProcessRef other) {
  if (!one || one.pid != other.pid) return false;
  if (one.start_ticks == 0 || other.start_ticks == 0) return true;
  const auto [low, high] = std::minmax(one.start_ticks, other.start_ticks);
  return high - low <= loose_ticks;
}

void EndedMembers::note(const Lineage& before, const Lineage& now) {
  for (const Member& member : before.members)
    if (now.find(member.process) == nullptr) members_.push_back(member);
  while (members_.size() > most) members_.pop_front();
}

void EndedMembers::forget_others(const std::function<bool(LeaseId)>& keep) {
  std::erase_if(members_, [&](const Member& member) { return !keep(member.lease); });
}

LeaseId EndedMembers::lease_of(ProcessRef process) const {
  const auto found = std::find_if(members_.rbegin(), members_.rend(),
                                  [&](const Member& member) { return may_be_same(member.process, process); });
  return found == members_.rend() ? LeaseId{} : found->lease;
}

LeaseId lease_above(std::span<const Ancestor> ancestry, const Lineage& lineage, const EndedMembers& ended,
                    std::span<const LeaseRoots> roots) {
  for (const Ancestor& each : ancestry) {
    for (const LeaseRoots& root : roots) {
      const auto is_it = [&](ProcessRef process) { return may_be_same(process, each.process); };
      if (is_it(root.main) || is_it(root.keeper) || std::ranges::any_of(root.attached, is_it)) return root.lease;
    }
    if (!each.dead) {
      if (const Member* member = lineage.find(each.process)) return member->lease;
    } else if (const LeaseId lease = ended.lease_of(each.process)) {
      return lease;
    }
  }
  return {};
}

}  // namespace sublet::proc
