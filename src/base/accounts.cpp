// SPDX-License-Identifier: Apache-2.0
#include "base/accounts.h"

#include <grp.h>
#include <pwd.h>

namespace sublet {
namespace {

std::optional<Found<passwd>> account_of(uid_t uid) {
  return look_up<passwd>([uid](passwd* entry, char* memory, std::size_t size, passwd** found) {
    return ::getpwuid_r(uid, entry, memory, size, found);
  });
}

}  // namespace

std::optional<gid_t> group_named(const std::string& name) {
  const auto found = look_up<group>([&name](group* entry, char* memory, std::size_t size, group** at) {
    return ::getgrnam_r(name.c_str(), entry, memory, size, at);
  });
  if (!found) return std::nullopt;
  return found->entry.gr_gid;
}

std::optional<std::string> account_named(uid_t uid) {
  const auto found = account_of(uid);
  if (!found) return std::nullopt;
  return found->entry.pw_name;
}

std::vector<gid_t> groups_of_account(uid_t uid) {
  const auto account = account_of(uid);
  if (!account) return {};
  std::vector<gid_t> groups(1024);
  int count = static_cast<int>(groups.size());
  // Too few, and it says how many there are; meanwhile there may be more.
  while (::getgrouplist(account->entry.pw_name, account->entry.pw_gid, groups.data(), &count) < 0) {
    if (groups.size() > 65536) return {account->entry.pw_gid};
    groups.resize(groups.size() * 4);
    count = static_cast<int>(groups.size());
  }
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

}  // namespace sublet
