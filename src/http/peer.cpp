// SPDX-License-Identifier: Apache-2.0
#include "http/peer.h"

#include "base/accounts.h"
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

// The account database is asked at most once a minute for each of our two groups, and for each account. What it said
// last serves while it does not answer; who is not known at all has no rights.
constexpr std::int64_t group_lifetime_ns = 60'000'000'000;
constexpr auto fresh = [](const auto&, std::int64_t age_ns) { return age_ns < group_lifetime_ns; };

std::optional<gid_t> group_id(const char* name) {
  static AskedAside<std::string, std::optional<gid_t>> groups(engine::accounts_thread(), engine::accounts_patience_ns);
  return groups.get(name, fresh, [name = std::string(name)] { return group_named(name); }).value_or(std::nullopt);
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
  static AskedAside<std::uint32_t, std::vector<gid_t>> groups(engine::accounts_thread(), engine::accounts_patience_ns);
  return role_by(groups.get(uid, fresh, [uid] { return groups_of_account(uid); }).value_or(std::vector<gid_t>()));
}

}  // namespace sublet::http
