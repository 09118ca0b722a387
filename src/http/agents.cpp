// SPDX-License-Identifier: Apache-2.0
#include "http/agents.h"

#include "base/accounts.h"
#include "base/aside.h"
#include "base/path.h"
#include "base/text.h"
#include "machine/account.h"
#include "state/format.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::http {
namespace {

using core::Lease;

Error database_is_silent() { return unavailable("the account database does not answer", "retry in a moment"); }

// Nothing while the database does not answer.
std::optional<std::optional<gid_t>> gid_of(const std::string& group) {
  static AskedAside<std::string, std::optional<gid_t>> known(machine::rights_thread(),
                                                             {.patience_ns = accounts_patience_ns});
  const auto fresh = [](const auto&, std::int64_t age_ns) { return age_ns < rights_fresh_ns; };
  return known.get(group, fresh, [group] { return group_named(group); });
}

std::optional<std::optional<uid_t>> uid_of(const std::string& user) {
  static AsideThread thread;
  static AskedAside<std::string, std::optional<uid_t>> known(thread, {.patience_ns = accounts_patience_ns});
  const auto fresh = [](const auto&, std::int64_t age_ns) { return age_ns < rights_fresh_ns; };
  return known.get(user, fresh, [user] { return uid_named(user); });
}

// A lease that was given back or taken back while processes of its group live: it is not settled, and the next lease of
// the group would have these processes too.
bool is_still_inhabited(const Call& call, const Lease& ended) {
  const auto runtime = call.engine.state().leases.runtime.find(ended.id);
  if (ended.owner.inode == 0 || (runtime != call.engine.state().leases.runtime.end() && runtime->second.program_ended))
    return false;
  const auto group = call.engine.programs().look_at_group(ended.owner.cgroup);
  return !group || (group->populated && group->inode == ended.owner.inode);
}

// The account that the caller named, by name or number.
Result<std::uint32_t> named_user(Body& behalf, const json& given) {
  constexpr std::int64_t most_uid = 4294967294;
  const auto found = given.find("user");
  if (found != given.end() && found->is_number()) {
    const auto uid = behalf.integer("user", 0, most_uid);
    if (uid) return static_cast<std::uint32_t>(*uid);
  }
  const auto name = behalf.text("user", 256);
  if (auto finished = behalf.finish(); !finished) return finished.error();
  if (!name) return bad_request("on_behalf has no user", "name the account, or give its uid");
  const auto uid = uid_of(*name);
  if (!uid) return database_is_silent();
  if (!*uid)
    return bad_request(fmt::format("user '{}' does not exist on this machine", printable(*name)),
                       "name an account of this machine, or give its uid");
  return **uid;
}

}  // namespace

Result<bool> is_agent(const engine::Peer& peer, const std::vector<std::string>& agents) {
  if (peer.role == engine::Role::admin) return true;
  if (peer.tcp || peer.role != engine::Role::user) return false;
  bool unknown = false;
  for (const std::string& agent : agents) {
    if (agent == peer.user || agent == std::to_string(peer.uid)) return true;
    if (!agent.starts_with('@') || peer.groups == nullptr) continue;
    const auto gid = gid_of(agent.substr(1));
    if (!gid) unknown = true;
    else if (*gid && std::ranges::count(*peer.groups, **gid) > 0) return true;
  }
  if (unknown) return database_is_silent();
  return false;
}

Result<OnBehalf> take_on_behalf(Body& body, const Call& call) {
  OnBehalf who{call.request.peer, false, {}};
  const json* given = body.object("on_behalf");
  const auto agent = is_agent(who.user, call.engine.options().agents);
  if (!agent && given != nullptr) return agent.error();
  who.by_agent = agent && *agent;
  if (given == nullptr) return who;
  if (!who.by_agent)
    return denied(fmt::format("user {} may not ask for leases on behalf of others", who.user.user),
                  "an admin names agents in api.agents; leave on_behalf out to ask for a lease of your own");
  Body behalf(*given, "on_behalf.");
  who.named = behalf.name("tenant");
  const auto uid = named_user(behalf, *given);
  if (auto finished = behalf.finish(); !finished) return finished.error();
  if (!uid) return uid.error();
  const auto name = machine::find_account_name(*uid);
  if (!name) return database_is_silent();
  who.user.uid = *uid;
  who.user.user = *name;
  who.user.role = engine::Role::user;
  who.user.groups = nullptr;
  return who;
}

Result<std::string> tenant_of(const OnBehalf& who, const engine::TenantRules& rules,
                              const std::optional<std::string>& asked) {
  if (who.named) return *who.named;
  if (who.by_agent && asked) return *asked;
  return engine::tenant_for(rules, who.user, asked);
}

Status take_group(const std::string& path, const OnBehalf& who, const Call& call, Lease& lease) {
  if (!who.by_agent)
    return denied(fmt::format("user {} may not name a control group as an owner", call.request.peer.user),
                  "name a process (owner.pid), or ask an admin to name the user in api.agents");
  if (auto here = may_name_processes(call.request.peer); !here) return here;
  const machine::Programs& programs = call.engine.programs();
  auto directory = programs.group_directory(path);
  if (!directory) return directory.error();
  const auto group = programs.look_at_group(*directory);
  if (!group) return group.error();
  lease.owner.kind = core::OwnerKind::group;
  lease.owner.cgroup = std::move(*directory);
  lease.owner.inode = group->populated ? group->inode : 0;
  return {};
}

Result<const Lease*> lease_of_group(const Call& call, const Lease& asked) {
  if (asked.owner.kind != core::OwnerKind::group) return nullptr;
  call.engine.observer().watch_groups();  // a lease of an earlier group of this name ends now
  for (const auto& [id, lease] : call.engine.state().leases.by_id) {
    if (lease.owner.kind != core::OwnerKind::group) continue;
    const std::string& other = lease.owner.cgroup;
    if (!lease.ended() && other == asked.owner.cgroup && lease.uid == asked.uid) return &lease;
    if (!is_inside(other, asked.owner.cgroup) && !is_inside(asked.owner.cgroup, other)) continue;
    if (lease.ended() && !is_still_inhabited(call, lease)) continue;
    if (lease.ended())
      return Error{Code::InUse,
                   fmt::format("processes of {} live on in the control group {} after its end, and its memory is not "
                               "measured gone",
                               core::name_of(lease), other),
                   fmt::format("end these processes, or ask again once it is settled: sublet why {}", to_string(id))};
    return Error{
        Code::InUse,
        fmt::format("the control group {} belongs to {} of user {} already", other, core::name_of(lease), lease.user),
        fmt::format("end that lease first, or name another group: sublet why {}", to_string(id))};
  }
  return nullptr;
}

}  // namespace sublet::http
