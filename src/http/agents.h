// SPDX-License-Identifier: Apache-2.0
// Agents: callers that ask for leases on behalf of other users, such as the plugin of a cluster engine. An agent is
// trusted as an admin is.
#pragma once

#include "engine/tenants.h"
#include "http/body.h"
#include "http/message.h"

namespace sublet::http {

// The user for whom a lease is asked.
struct OnBehalf {
  engine::Peer user;                 // the caller, or the user that the caller named
  bool by_agent = false;             // the caller is an agent or an admin
  std::optional<std::string> named;  // the tenant in `on_behalf`
};

// Whether the caller may ask on behalf of others: an admin, or a user of api.agents over the Unix socket. Unavailable
// while the account database does not answer. Loop thread only.
Result<bool> is_agent(const engine::Peer& peer, const std::vector<std::string>& agents);

// Reads `on_behalf`. Denied if the caller is no agent, BadRequest if there is no such user.
Result<OnBehalf> take_on_behalf(Body& body, const Call& call);

// The tenant of a lease for this user. `asked`: the body's `tenant`. An agent may name any tenant.
Result<std::string> tenant_of(const OnBehalf& who, const engine::TenantRules& rules,
                              const std::optional<std::string>& asked);

// Makes the lease belong to the control group `path`. Denied unless the caller is an agent on this machine.
Status take_group(const std::string& path, const OnBehalf& who, const Call& call, core::Lease& lease);

// The living lease of this control group; null: none. InUse if a group above or below it has a lease, or another user
// has its lease.
Result<const core::Lease*> lease_of_group(const Call& call, const core::Lease& asked);

}  // namespace sublet::http
