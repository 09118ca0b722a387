// SPDX-License-Identifier: Apache-2.0
#include "machine/user_directory.h"

#include "base/fd.h"

#include <fmt/format.h>

#include <endian.h>
#include <fcntl.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <array>
#include <cerrno>

namespace sublet::machine {
namespace {

constexpr unsigned read_write_enter = ACL_READ | ACL_WRITE | ACL_EXECUTE;
constexpr auto nobody = static_cast<std::uint32_t>(ACL_UNDEFINED_ID);

// An access list: all for the owner, `more` for one other user, and nothing for anybody else.
struct AccessList {
  AccessList(std::uint32_t uid, unsigned more)
      : entries{entry(ACL_USER_OBJ, read_write_enter), entry(ACL_USER, more, uid), entry(ACL_GROUP_OBJ, 0),
                entry(ACL_MASK, more), entry(ACL_OTHER, 0)} {}

  static posix_acl_xattr_entry entry(unsigned tag, unsigned rights, std::uint32_t id = nobody) {
    return {.e_tag = htole16(static_cast<std::uint16_t>(tag)),
            .e_perm = htole16(static_cast<std::uint16_t>(rights)),
            .e_id = htole32(id)};
  }

  posix_acl_xattr_header header{.a_version = htole32(POSIX_ACL_XATTR_VERSION)};
  std::array<posix_acl_xattr_entry, 5> entries;
};

// The files that the user makes there are readable for the daemon, whatever the umask of the program.
int open_for(int directory, std::uint32_t uid) {
  const AccessList own(uid, read_write_enter), inherited(::geteuid(), ACL_READ);
  if (::fsetxattr(directory, "system.posix_acl_access", &own, sizeof own, 0) != 0) return errno;
  return ::fsetxattr(directory, "system.posix_acl_default", &inherited, sizeof inherited, 0) == 0 ? 0 : errno;
}

}  // namespace

std::string user_directory(const std::string& dir, std::uint32_t uid) { return fmt::format("{}/{}", dir, uid); }

Status make_user_directory(const std::string& dir, std::uint32_t uid) {
  const std::string path = user_directory(dir, uid);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return from_errno("cannot create " + path, errno);
  const Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (!directory || ::fstat(directory.get(), &about) != 0) return from_errno("cannot open " + path, errno);
  const uid_t daemon = ::geteuid();
  if (about.st_uid != daemon && about.st_uid != uid)
    return denied(fmt::format("{} belongs to uid {}", path, about.st_uid), "remove it");
  if (about.st_uid == uid) return {};
  if (daemon == 0) {
    const bool given = ::fchown(directory.get(), uid, static_cast<gid_t>(-1)) == 0;
    if (given && ::fchmod(directory.get(), 0700) == 0) return {};
    return from_errno(fmt::format("cannot give {} to uid {}", path, uid), errno);
  }
  if (const int problem = open_for(directory.get(), uid); problem != 0)
    return from_errno(fmt::format("cannot open {} to uid {} by an access list (ACL)", path, uid), problem);
  return {};
}

}  // namespace sublet::machine
