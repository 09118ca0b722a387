// SPDX-License-Identifier: Apache-2.0
#include "engine/tenants.h"

#include "base/accounts.h"
#include "base/aside.h"
#include "machine/account.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::engine {
namespace {

using GroupIds = std::map<std::string, gid_t>;  // groups that the database does not have are missing

// All groups are one question, so that the loop waits once for a slow database. While it does not answer, the last
// answer is used without a limit, since group ids do not change. A thread of its own asks: rights need not wait for it.
std::optional<GroupIds> group_ids(const TenantRules& rules) {
  static AsideThread thread;
  static AskedAside<std::vector<std::string>, GroupIds> asked(thread, {.patience_ns = accounts_patience_ns});
  const auto fresh = [](const auto&, std::int64_t age_ns) { return age_ns < rights_fresh_ns; };
  std::vector<std::string> names;
  for (const auto& [group, tenant] : rules.groups) names.push_back(group);
  return asked.get(names, fresh, [names]() -> Result<GroupIds> {
    GroupIds ids;
    for (const std::string& name : names) {
      const auto id = group_named(name);
      if (!id) return id.error();
      if (*id) ids[name] = **id;
    }
    return ids;
  });
}

}  // namespace

Tenants tenants_of(const TenantRules& rules, const Peer& peer) {
  if (rules.groups.empty()) return tenants_of(rules, peer.user, InGroup());
  const auto ids = group_ids(rules);
  const auto theirs = peer.groups != nullptr ? std::optional(*peer.groups) : machine::account_groups(peer.uid);
  return tenants_of(rules, peer.user, [&](const std::string& group) -> std::optional<bool> {
    if (!ids) return std::nullopt;
    const auto id = ids->find(group);
    if (id == ids->end()) return false;
    if (!theirs) return std::nullopt;
    return std::find(theirs->begin(), theirs->end(), id->second) != theirs->end();
  });
}

Tenants tenants_of(const TenantRules& rules, const std::string& user, const InGroup& in_group) {
  Tenants found{.usual = {}, .names = {user}};
  const auto add = [&](const std::string& tenant) {
    if (std::find(found.names.begin(), found.names.end(), tenant) == found.names.end()) found.names.push_back(tenant);
    if (!found.usual && found.complete) found.usual = tenant;
  };
  if (const auto entry = rules.users.find(user); entry != rules.users.end()) add(entry->second);
  for (const auto& [group, tenant] : rules.groups) {
    const auto member = in_group(group);
    if (!member) found.complete = false;
    else if (*member) add(tenant);
  }
  if (!found.usual && found.complete) found.usual = user;
  return found;
}

Result<std::string> tenant_for(const TenantRules& rules, const Peer& peer, const std::optional<std::string>& asked) {
  if (asked && (*asked == peer.user || peer.role == Role::admin)) return *asked;
  const auto entry = rules.users.find(peer.user);
  if (entry != rules.users.end() && asked.value_or(entry->second) == entry->second) return entry->second;
  const Tenants tenants = tenants_of(rules, peer);
  if (!asked && tenants.usual) return *tenants.usual;
  if (asked && std::find(tenants.names.begin(), tenants.names.end(), *asked) != tenants.names.end()) return *asked;
  if (!tenants.complete) {
    return unavailable(
        fmt::format("the account database does not answer, so the tenants of user {} are unknown", peer.user),
        fmt::format("retry in a moment, or name a tenant that is known: {}", fmt::join(tenants.names, ", ")));
  }
  return denied(fmt::format("user {} is not allowed to charge tenant {}", peer.user, *asked),
                fmt::format("tenants of {}: {}; an admin may charge any", peer.user, fmt::join(tenants.names, ", ")));
}

void ask_for_tenant_groups(const TenantRules& rules) {
  if (!rules.groups.empty()) (void)group_ids(rules);
}

}  // namespace sublet::engine
