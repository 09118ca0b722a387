// SPDX-License-Identifier: Apache-2.0
#include "actor/roles.h"

#include "base/accounts.h"
#include "base/clock.h"

#include <algorithm>

namespace sublet::actor {
namespace {

constexpr std::int64_t answer_serves_ns = 60'000'000'000;
constexpr std::size_t most_known = 4096;

bool in_admin_group(std::uint32_t uid) {
  const auto admins = group_named("sublet-admin");
  if (!admins) return false;
  const auto groups = groups_of_account(uid);
  return std::find(groups.begin(), groups.end(), *admins) != groups.end();
}

}  // namespace

bool may(Role role, Verb verb) {
  if (role == Role::nobody) return false;
  if (role != Role::owner) return true;
  // The lease's own user: what concerns the lease. When it is over is the daemon's to say.
  return verb == Verb::follow || verb == Verb::signal || verb == Verb::wake_keeper || verb == Verb::checkpoint;
}

bool may_signal(Role role, std::uint32_t lease_uid, const proc::Uids& process) {
  if (role == Role::admin || lease_uid == 0) return true;
  // As the kernel asks of a user who signals.
  return process.real == lease_uid || process.saved == lease_uid;
}

bool may_park(std::uint32_t lease_uid, std::uint32_t process_uid) { return lease_uid == 0 || process_uid == lease_uid; }

bool AdminGroup::has(std::uint32_t uid) {
  const std::int64_t now = monotonic_ns();
  const auto before = known_.find(uid);
  if (before != known_.end() && now - before->second.at_ns < answer_serves_ns) return before->second.member;
  if (known_.size() >= most_known) known_.clear();
  const bool member = in_admin_group(uid);
  known_[uid] = {member, now};
  return member;
}

}  // namespace sublet::actor
