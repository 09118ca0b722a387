// SPDX-License-Identifier: Apache-2.0
#include "http/peer.h"

#include "base/accounts.h"
#include "base/aside.h"
#include "machine/account.h"
#include "proc/pidfd.h"

#include <fmt/format.h>

#include <sys/socket.h>
#include <algorithm>
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

// The account database is asked at most once a minute for each of our two groups. While it does not answer, the last
// answer is used without a limit, since group ids do not change. Nothing: it is not known whether there is such a
// group.
std::optional<std::optional<gid_t>> group_id(const char* name) {
  static AskedAside<std::string, std::optional<gid_t>> groups(machine::rights_thread(),
                                                              {.patience_ns = accounts_patience_ns});
  const auto fresh = [](const auto&, std::int64_t age_ns) { return age_ns < rights_fresh_ns; };
  return groups.get(name, fresh, [name = std::string(name)] { return group_named(name); });
}

std::optional<bool> in_group(const std::vector<gid_t>& groups, const char* name) {
  const auto gid = group_id(name);
  if (!gid) return std::nullopt;
  return *gid && std::find(groups.begin(), groups.end(), **gid) != groups.end();
}

engine::Role role_by(const std::vector<gid_t>& groups) {
  const auto admins = in_group(groups, "sublet-admin");
  const auto users = in_group(groups, "sublet");
  if (admins.value_or(false)) return engine::Role::admin;
  if (!admins || !users) return engine::Role::unknown;
  return *users ? engine::Role::user : engine::Role::nobody;
}

engine::Role role_of_peer(const proc::Peer& who, const std::vector<gid_t>& groups, std::uint32_t own_uid,
                          bool own_daemon) {
  if (who.anonymous) return engine::Role::nobody;
  if (who.uid == own_uid || who.uid == 0) return engine::Role::admin;
  return own_daemon ? engine::Role::nobody : role_by(groups);
}

}  // namespace

void ask_for_groups() {
  for (const char* name : {"sublet-admin", "sublet"}) (void)group_id(name);
}

engine::Peer peer_of(const proc::ProcRoot& root, int socket, std::uint32_t own_uid, bool own_daemon) {
  engine::Peer peer;
  const auto who = proc::peer_of(root, socket);
  if (!who) return peer;
  peer.uid = who->uid;
  peer.pid = who->pid;
  auto groups = std::make_shared<const std::vector<gid_t>>(peer_groups(socket, who->gid));
  peer.role = role_of_peer(*who, *groups, own_uid, own_daemon);
  if (peer.role >= engine::Role::user) peer.groups = std::move(groups);
  // Unknown users may be many, and their names are not worth a wait.
  peer.user = peer.role >= engine::Role::user ? machine::account_name(who->uid) : std::to_string(who->uid);
  return peer;
}

engine::Role role_of(std::uint32_t uid, std::uint32_t own_uid, bool own_daemon) {
  if (uid == own_uid || uid == 0) return engine::Role::admin;
  if (own_daemon) return engine::Role::nobody;
  const auto known = machine::account_groups(uid);
  return known ? role_by(*known) : engine::Role::unknown;
}

Error role_unknown(std::string_view user) {
  return unavailable(fmt::format("the account database does not answer, so the rights of user {} are unknown", user),
                     "retry in a moment; `getent group sublet` shows whether the database answers");
}

}  // namespace sublet::http
