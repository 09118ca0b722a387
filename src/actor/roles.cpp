// SPDX-License-Identifier: Apache-2.0
#include "actor/roles.h"

#include "base/accounts.h"

#include <algorithm>
#include <utility>

namespace sublet::actor {

bool may(Role role, Verb verb) {
  if (role == Role::nobody) return false;
  // Only the daemon has seen an unleased process long enough to judge it.
  if (verb == Verb::inspect || verb == Verb::end || verb == Verb::close) return role == Role::daemon;
  if (verb == Verb::source || verb == Verb::parents) return role == Role::daemon;
  if (role != Role::owner) return true;
  // The lease's own user may give orders about the lease. Only the daemon decides when the lease has ended.
  return verb == Verb::follow || verb == Verb::signal || verb == Verb::wake_keeper || verb == Verb::checkpoint;
}

bool may_signal(Role role, std::uint32_t lease_uid, const proc::Uids& process) {
  if (role == Role::admin || lease_uid == 0) return true;
  // The kernel's rule for a user who sends a signal.
  return process.real == lease_uid || process.saved == lease_uid;
}

bool may_park(std::uint32_t lease_uid, std::uint32_t process_uid) { return lease_uid == 0 || process_uid == lease_uid; }

Result<bool> in_admin_group(std::uint32_t uid) {
  const auto admins = group_named("sublet-admin");
  if (!admins) return admins.error();
  if (!*admins) return false;
  const auto groups = groups_of_account(uid);
  if (!groups) return groups.error();
  return std::find(groups->begin(), groups->end(), **admins) != groups->end();
}

AdminGroup::AdminGroup(Ask ask)
    : ask_(std::move(ask)), members_(thread_, {.patience_ns = accounts_patience_ns, .serves_ns = rights_serve_ns}) {}

bool AdminGroup::has(std::uint32_t uid) {
  const auto fresh = [](bool, std::int64_t age_ns) { return age_ns < rights_fresh_ns; };
  return members_.get(uid, fresh, [ask = ask_, uid] { return ask(uid); }).value_or(false);
}

}  // namespace sublet::actor
