// SPDX-License-Identifier: Apache-2.0
#include "http/find_lease.h"

#include "base/text.h"
#include "guard/guard.h"
#include "store/secret.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace sublet::http {
namespace {

// A tag is each user's own.
Error no_such_lease(const Call& call, const std::string& name) {
  for (const auto& [id, lease] : call.engine.state().leases.by_id)  // a look at another user's tag: rare
    if (lease.tag == name && !name.empty() && !lease.ended())
      return not_found(
          fmt::format("you have no lease with the tag '{}'", printable(name)),
          fmt::format("a tag is unique per user only: {} has {} with this tag", lease.user, to_string(id)));
  const guard::Guard* guard = call.capabilities.guard;
  if (guard != nullptr && guard->find(call.request.peer.uid, name) != nullptr)
    return not_found(fmt::format("program '{}' has had no lease", printable(name)),
                     fmt::format("sublet status {} shows the program", printable(name)));
  std::vector<std::string_view> tags;
  for (const auto& [id, lease] : call.engine.state().leases.by_id)
    if (lease.uid == call.request.peer.uid && !lease.ended() && !lease.tag.empty()) tags.push_back(lease.tag);
  if (guard != nullptr)
    for (const auto& [key, program] : guard->programs())
      if (key.first == call.request.peer.uid) tags.push_back(program.tag);
  return not_found(fmt::format("lease '{}' does not exist{}", printable(name), did_you_mean(name, tags)),
                   "'sublet ps --all' lists ids and tags");
}

// The caller's own lease of that tag; for an admin, anybody's, if it is the only one.
Result<const core::Lease*> find_live_tag(const Call& call, const std::string& name) {
  const core::State& state = call.engine.state();
  if (const core::Lease* own = core::find_tag(state, call.request.peer.uid, name)) return own;
  if (call.request.peer.role != engine::Role::admin) return nullptr;
  std::vector<const core::Lease*> found;
  for (const auto& [id, lease] : state.leases.by_id) {  // an admin's look at another user's tag: rare
    if (lease.tag == name && !lease.ended()) found.push_back(&lease);
  }
  if (found.size() <= 1) return found.empty() ? nullptr : found[0];
  std::string all;
  for (const core::Lease* lease : found) all += fmt::format(" {} ({})", to_string(lease->id), lease->user);
  return bad_request(fmt::format("{1} leases have the tag '{0}':{2}", printable(name), found.size(), all),
                     "name the lease by its id");
}

using Found = Result<std::optional<core::Lease>>;

Later from_store(engine::Engine& engine, std::function<Found(store::Reader&)> look, Error none,
                 std::function<Reply(const core::Lease&)> next) {
  return Later{[&engine, look = std::move(look), none = std::move(none),
                next = std::move(next)](std::function<void(Reply)> done) {
    engine.commits().read([look, none, next, done](store::Reader& reader) {
      return [none, next, done, found = look(reader)] {
        if (!found) return done(problem(found.error()));
        if (!*found) return done(problem(none));
        done(next(**found));
      };
    });
  }};
}

}  // namespace

bool has_token(const Request& request, const core::Lease& lease) {
  return !request.lease_token.empty() && store::is_secret(request.lease_token, lease.token);
}

bool is_owner(const Request& request, const core::Lease& lease) {
  return request.peer.uid == lease.uid || has_token(request, lease);
}

Status may_act(const Request& request, const core::Lease& lease) {
  if (request.peer.may_act_for(lease.uid)) return {};
  if (has_token(request, lease)) return {};
  return denied(fmt::format("{} belongs to user {}", to_string(lease.id), lease.user),
                "only the owner or an admin can do this");
}

Reply with_lease(Call& call, const std::string& name, std::function<Reply(const core::Lease&)> next) {
  const auto id = parse_lease_id(name);
  const auto live = id ? Result<const core::Lease*>(call.engine.find(*id)) : find_live_tag(call, name);
  if (!live) return problem(live.error());
  if (*live != nullptr) return next(**live);
  const auto uid = call.request.peer.role == engine::Role::admin ? std::nullopt : std::optional(call.request.peer.uid);
  return from_store(
      call.engine, [name, id, uid](store::Reader& reader) { return id ? reader.lease(*id) : reader.by_tag(name, uid); },
      no_such_lease(call, name), std::move(next));
}

Later ended_lease(engine::Engine& engine, LeaseId id, Error none, std::function<Reply(const core::Lease&)> next) {
  return from_store(
      engine, [id](store::Reader& reader) { return reader.lease(id); }, std::move(none), std::move(next));
}

const core::Lease* lease_around(const Call& call, bool owned) {
  const engine::Peer& peer = call.request.peer;
  if (peer.tcp || peer.pid <= 0 || !call.engine.programs().check_pid_namespace(peer.pid)) return nullptr;
  const core::Lease* lease = core::find(call.engine.state(), call.engine.programs().lease_around(peer.pid, owned));
  return lease != nullptr && !lease->ended() && lease->reserves() ? lease : nullptr;
}

}  // namespace sublet::http
