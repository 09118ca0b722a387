// SPDX-License-Identifier: Apache-2.0
#include "base/accounts.h"

#include "base/fd.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>

namespace sublet {
namespace {

Result<std::optional<Found<passwd>>> account_of(uid_t uid) {
  return look_up<passwd>([uid](passwd* entry, char* memory, std::size_t size, passwd** found) {
    return ::getpwuid_r(uid, entry, memory, size, found);
  });
}

}  // namespace

int untold_failure(int error) {
  const auto fails = [](int number) {
    return number == EMFILE || number == ENFILE || number == ENOMEM || number == EIO;
  };
  if (fails(error)) return error;
  const Fd any(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return !any && fails(errno) ? errno : 0;
}

Result<std::optional<gid_t>> group_named(const std::string& name) {
  const auto found = look_up<group>([&name](group* entry, char* memory, std::size_t size, group** at) {
    return ::getgrnam_r(name.c_str(), entry, memory, size, at);
  });
  if (!found) return found.error();
  return *found ? std::optional((*found)->entry.gr_gid) : std::nullopt;
}

Result<std::optional<uid_t>> uid_named(const std::string& name) {
  const auto found = look_up<passwd>([&name](passwd* entry, char* memory, std::size_t size, passwd** at) {
    return ::getpwnam_r(name.c_str(), entry, memory, size, at);
  });
  if (!found) return found.error();
  return *found ? std::optional((*found)->entry.pw_uid) : std::nullopt;
}

Result<bool> has_account(const std::string& name) {
  const auto uid = uid_named(name);
  if (!uid) return uid.error();
  return uid->has_value();
}

Result<std::optional<std::string>> account_named(uid_t uid) {
  const auto found = account_of(uid);
  if (!found) return found.error();
  return *found ? std::optional<std::string>((*found)->entry.pw_name) : std::nullopt;
}

Result<std::vector<gid_t>> groups_of_account(uid_t uid) {
  const auto account = account_of(uid);
  if (!account) return account.error();
  if (!*account) return std::vector<gid_t>();
  const passwd& entry = (*account)->entry;
  std::vector<gid_t> groups(1024);
  int count = static_cast<int>(groups.size());
  errno = 0;
  // getgrouplist() does not report failures: the caller asks untold_failure(). If the buffer is too small, the call
  // stores the number of groups in `count`. The number may have grown by the next call.
  while (::getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0) {
    if (groups.size() > 65536) return from_errno("cannot ask the account database for groups", E2BIG);
    groups.resize(groups.size() * 4);
    count = static_cast<int>(groups.size());
    errno = 0;
  }
  if (const int untold = untold_failure(errno); untold != 0) {
    return from_errno("cannot ask the account database for groups", untold);
  }
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

}  // namespace sublet
