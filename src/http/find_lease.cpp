// SPDX-License-Identifier: Apache-2.0
#include "http/find_lease.h"

#include "base/text.h"

namespace sublet::http {
namespace {

Error no_such_lease(const std::string& name) {
  return not_found(fmt::format("there is no lease '{}'", printable(name)), "'sublet ps --all' lists ids and tags");
}

// A reply made on the loop after the store has answered. Waiting on a lease that only the store knows makes no sense,
// since it has ended: such a reply is a Response or another Later.
void finish(Reply reply, const std::function<void(Response)>& done) {
  if (auto* response = std::get_if<Response>(&reply)) return done(std::move(*response));
  if (auto* later = std::get_if<Later>(&reply)) return later->start(done);
  done(problem(unavailable("the lease has ended")));
}

const core::Lease* find_live_tag(const Call& call, const std::string& name) {
  const core::State& state = call.engine.state();
  if (const core::Lease* own = state.find_tag(call.request.peer.uid, name)) return own;
  if (call.request.peer.role != engine::Role::admin) return nullptr;
  const core::Lease* found = nullptr;
  for (const auto& [id, lease] : state.leases()) {  // an admin's look at another user's tag: rare
    if (lease.tag == name && !lease.ended()) found = &lease;
  }
  return found;
}

}  // namespace

Reply with_lease(Call& call, const std::string& name, std::function<Reply(const core::Lease&)> next) {
  const auto id = parse_lease_id(name);
  const core::Lease* live = id ? call.engine.find(*id) : find_live_tag(call, name);
  if (live != nullptr) return next(*live);
  const auto uid = call.request.peer.role == engine::Role::admin ? std::nullopt : std::optional(call.request.peer.uid);
  return Later{[&engine = call.engine, name, id, uid, next](std::function<void(Response)> done) {
    engine.read_store([name, id, uid, next, done](store::Reader& reader) {
      auto found = id ? reader.lease(*id) : reader.by_tag(name, uid);
      return [name, next, done, found = std::move(found)] {
        if (!found) return done(problem(found.error()));
        if (!*found) return done(problem(no_such_lease(name)));
        finish(next(**found), done);
      };
    });
  }};
}

}  // namespace sublet::http
