// SPDX-License-Identifier: Apache-2.0
#include "http/peer.h"

#include "base/accounts.h"
#include "base/clock.h"
#include "engine/account.h"
#include "proc/pidfd.h"

#include <sys/socket.h>

#include <cerrno>
#include <vector>

namespace sublet::http {
namespace {

// The peer's groups as they were when it connected; not those of the account database, which it may have left.
std::vector<gid_t> peer_groups(int socket, gid_t primary) {
  std::vector<gid_t> groups(64);
  socklen_t size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  while (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) {
    if (errno != ERANGE || groups.size() > 65536) return {primary};
    groups.resize(groups.size() * 4);
    size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  }
  groups.resize(size / sizeof(gid_t));
  groups.push_back(primary);
  return groups;
}

// The account database may be a network service: asked at most once a minute for each of our two groups, and for each
// account.
constexpr std::int64_t group_lifetime_ns = 60'000'000'000;
constexpr std::size_t most_known = 4096;  // accounts

std::optional<gid_t> group_id(const char* name) {
  struct Known {
    std::optional<gid_t> gid;
    std::int64_t at_ns = 0;
  };
  static std::map<std::string, Known> cache;  // the loop thread's
  Known& known = cache[name];
  const std::int64_t now = monotonic_ns();
  if (known.at_ns != 0 && now - known.at_ns < group_lifetime_ns) return known.gid;
  known = {group_named(name), now};
  return known.gid;
}

bool in_group(const std::vector<gid_t>& groups, const char* name) {
  const auto gid = group_id(name);
  return gid && std::find(groups.begin(), groups.end(), *gid) != groups.end();
}

engine::Role role_by(const std::vector<gid_t>& groups) {
  if (in_group(groups, "sublet-admin")) return engine::Role::admin;
  return in_group(groups, "sublet") ? engine::Role::user : engine::Role::nobody;
}

}  // namespace

engine::Peer peer_of(const proc::ProcRoot& root, int socket, std::uint32_t own_uid, bool own_daemon) {
  engine::Peer peer;
  const auto who = proc::peer_of(root, socket);
  if (!who) return peer;
  peer.uid = who->uid;
  peer.pid = who->pid;
  peer.user = engine::account_name(who->uid);
  if (who->anonymous) return peer;
  if (who->uid == own_uid || who->uid == 0) {
    peer.role = engine::Role::admin;
    return peer;
  }
  if (own_daemon) return peer;
  peer.role = role_by(peer_groups(socket, who->gid));
  return peer;
}

engine::Role role_of(std::uint32_t uid, std::uint32_t own_uid, bool own_daemon) {
  if (uid == own_uid || uid == 0) return engine::Role::admin;
  if (own_daemon) return engine::Role::nobody;
  struct Known {
    engine::Role role = engine::Role::nobody;
    std::int64_t at_ns = 0;
  };
  static std::map<std::uint32_t, Known> cache;  // the loop thread's
  const std::int64_t now = monotonic_ns();
  const auto before = cache.find(uid);
  if (before != cache.end() && now - before->second.at_ns < group_lifetime_ns) return before->second.role;
  if (cache.size() >= most_known) cache.clear();
  return (cache[uid] = {role_by(groups_of_account(uid)), now}).role;
}

}  // namespace sublet::http
