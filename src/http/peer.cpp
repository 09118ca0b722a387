// SPDX-License-Identifier: Apache-2.0
#include "http/peer.h"

#include "base/clock.h"
#include "engine/account.h"
#include "proc/pidfd.h"

#include <grp.h>
#include <sys/socket.h>

#include <array>
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

// The account database may be a network service: asked at most once a minute for each of our two groups.
constexpr std::int64_t group_lifetime_ns = 60'000'000'000;

std::optional<gid_t> group_id(const char* name) {
  struct Known {
    std::optional<gid_t> gid;
    std::int64_t at_ns = 0;
  };
  static std::map<std::string, Known> cache;  // the loop thread's
  Known& known = cache[name];
  const std::int64_t now = monotonic_ns();
  if (known.at_ns != 0 && now - known.at_ns < group_lifetime_ns) return known.gid;
  std::array<char, 4096> buffer{};
  group entry{};
  group* found = nullptr;
  ::getgrnam_r(name, &entry, buffer.data(), buffer.size(), &found);
  known = {found == nullptr ? std::nullopt : std::optional(found->gr_gid), now};
  return known.gid;
}

bool in_group(const std::vector<gid_t>& groups, const char* name) {
  const auto gid = group_id(name);
  return gid && std::find(groups.begin(), groups.end(), *gid) != groups.end();
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
  const auto groups = peer_groups(socket, who->gid);
  if (in_group(groups, "sublet-admin")) peer.role = engine::Role::admin;
  else if (in_group(groups, "sublet")) peer.role = engine::Role::user;
  return peer;
}

}  // namespace sublet::http
