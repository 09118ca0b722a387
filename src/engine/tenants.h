// SPDX-License-Identifier: Apache-2.0
// The tenants that a user may charge, by the configuration. A tenant is the account that a lease is charged to.
#pragma once

#include "base/error.h"
#include "engine/peer.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sublet::engine {

struct TenantRules {
  std::map<std::string, std::string> users;                   // default tenant by the user's name
  std::vector<std::pair<std::string, std::string>> groups{};  // group and default tenant of its members, in order
};

// The tenants of one user.
struct Tenants {
  std::optional<std::string> usual;  // of a lease that names none; unset: a group decides, and its members are unknown
  std::vector<std::string> names;    // each once: the user's own name, its entry, then its groups' in order
  bool complete = true;              // false: the members of a group are unknown, so `names` may lack some
};

// Whether the user is in the group; nothing while this is unknown.
using InGroup = std::function<std::optional<bool>(const std::string& group)>;
// Pure. The user's entry decides, then the first group of the rules that has the user, then the user's own name.
Tenants tenants_of(const TenantRules& rules, const std::string& user, const InGroup& in_group);

// The same for a peer. Waits for the account database a quarter of a second at most. Loop thread only.
Tenants tenants_of(const TenantRules& rules, const Peer& peer);

// Returns the tenant of a lease of this peer. `asked`: the tenant that the peer names; unset: the usual one. Denied if
// the peer may not charge it, Unavailable if a group decides and the account database does not answer. Waits for the
// database a quarter of a second at most. Loop thread only.
Result<std::string> tenant_for(const TenantRules& rules, const Peer& peer,
                               const std::optional<std::string>& asked = {});

// Looks up the group ids before the first lease.
void ask_for_tenant_groups(const TenantRules& rules);

}  // namespace sublet::engine
