// SPDX-License-Identifier: Apache-2.0
// Grants: programs that may be parked although Sublet did not start them; given and revoked by the leases' user.
#include "http/grants.h"
#include "base/text.h"
#include "http/body.h"
#include "http/routes.h"
#include "machine/account.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

json render(std::uint32_t uid, const std::string& user, const std::string& consumer) {
  return {{"consumer", consumer}, {"uid", uid}, {"user", user}};
}

Reply store(Call& call, bool given) {
  const engine::Peer& peer = call.request.peer;
  const core::Grant grant{peer.uid, call.args[0], given};
  const json shown = render(peer.uid, peer.user, grant.consumer);
  return as_json(call.engine.set_grant(grant, call.remember, {200, shown.dump()}));
}

}  // namespace

json render_grants(const engine::Engine& engine) {
  json rows = json::array();
  for (const auto& [uid, name] : engine.state().learned.grants)
    rows.push_back(render(uid, machine::account_name(uid), name));
  return rows;
}

namespace {

Reply post_grant(Call& call) {
  if (auto none = Body(call.request.body).finish(); !none) return problem(none.error());
  if (!is_label(call.args[0])) {
    return problem(bad_request(fmt::format("'{}' is not a consumer's name", printable(call.args[0])),
                               "use 1 to 64 printable characters without '/'"));
  }
  const auto& grants = call.engine.state().learned.grants;
  const std::uint32_t uid = call.request.peer.uid;
  const auto own = std::count_if(grants.begin(), grants.end(), [uid](const auto& grant) { return grant.uid == uid; });
  if (own >= most_grants) {
    return problem({Code::Quota,
                    fmt::format("user {} has {} grants, which is the limit", call.request.peer.user, own),
                    "revoke a grant: sublet pause --revoke CONSUMER",
                    {{"limit", most_grants}}});
  }
  return store(call, true);
}

Reply delete_grant(Call& call) {
  if (!core::is_granted(call.engine.state(), {call.request.peer.uid, call.args[0]})) {
    return problem(
        not_found(fmt::format("user {} has no grant for '{}'", call.request.peer.user, printable(call.args[0])),
                  "list your grants: sublet pause --grants"));
  }
  return store(call, false);
}

constexpr Route table[] = {
    Route{Method::post, "/v1/consumers/{name}/grant", Role::user, Scope::submit, post_grant, "", "Grant"},
    Route{Method::del, "/v1/consumers/{name}/grant", Role::user, Scope::submit, delete_grant, "", "Grant"},
};

}  // namespace

const std::span<const Route> grant_routes = table;

}  // namespace sublet::http
