// SPDX-License-Identifier: Apache-2.0
#include "compose/trust.h"

#include "base/text.h"

#include <fmt/format.h>

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cerrno>
#include <filesystem>

namespace sublet::compose {
namespace {

namespace fs = std::filesystem;

constexpr int most_links = 40;

Error unsafe(const std::string& path, const std::string& why, const std::string& hint) {
  return denied(fmt::format("{} {}", printable(path), why), hint);
}

// Those who may write to it too; "": nobody. With an access list, the bits of the group are the most that others on the
// list may do.
std::string writers_of(const std::string& path, const struct stat& entry, const Trust& trust) {
  const bool group = (entry.st_mode & S_IWGRP) != 0;
  if (group && entry.st_gid != 0 && entry.st_gid != trust.group) return "its group";
  if ((entry.st_mode & S_IWOTH) != 0) return "everybody";
  if (group && ::getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0) return "others on its access list";
  return "";
}

// In a directory with the sticky bit, others may make a file that is missing.
Status check_missing(const fs::path& path, const Trust& trust) {
  const std::string above = path.parent_path().string();
  struct stat entry {};
  const std::string writers = ::stat(above.c_str(), &entry) == 0 ? writers_of(above, entry, trust) : "";
  if (writers.empty()) return not_found(fmt::format("{} does not exist", printable(path.string())));
  return unsafe(path.string(), fmt::format("does not exist, and {} can be written by {}", printable(above), writers),
                "make the file, or use a directory that only root can write to");
}

Status check_entry(const std::string& path, const struct stat& entry, bool above, const Trust& trust) {
  if (entry.st_uid != 0 && entry.st_uid != trust.user) {
    return unsafe(path, fmt::format("belongs to uid {}", entry.st_uid),
                  trust.user == 0 ? "give it to root: its content is run with the rights of root"
                                  : fmt::format("give it to root or uid {}", trust.user));
  }
  if (S_ISLNK(entry.st_mode)) return {};
  // In a directory with this bit only the owner of a file renames the file.
  if (above && S_ISDIR(entry.st_mode) && (entry.st_mode & S_ISVTX) != 0) return {};
  const std::string writers = writers_of(path, entry, trust);
  if (writers.empty()) return {};
  return unsafe(path, "can be written by " + writers,
                "take this right away: its content is run with the rights of root");
}

// Only its owner, who is trusted, may enter the directory.
bool is_closed(const fs::path& directory) {
  struct stat entry {};
  if (::stat(directory.c_str(), &entry) == 0) return S_ISDIR(entry.st_mode) && (entry.st_mode & 077) == 0;
  return errno == EACCES && directory.has_relative_path() && is_closed(directory.parent_path());
}

Status check_path(const fs::path& path, bool above, const Trust& trust, int& links) {
  if (path.has_relative_path()) {
    if (auto safe = check_path(path.parent_path(), true, trust, links); !safe) return safe;
  }
  struct stat entry {};
  if (::lstat(path.c_str(), &entry) != 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    if (missing) return check_missing(path, trust);
    if (errno == EACCES && is_closed(path.parent_path())) return {};
    return from_errno("cannot read " + printable(path.string()), errno);
  }
  if (S_ISCHR(entry.st_mode) && entry.st_rdev == makedev(1, 3)) return {};  // /dev/null
  if (auto safe = check_entry(path.string(), entry, above, trust); !safe) return safe;
  if (!S_ISLNK(entry.st_mode)) return {};
  if (++links > most_links) return unsafe(path.string(), "has too many symbolic links", "use the real path");
  std::error_code failure;
  const fs::path target = fs::read_symlink(path, failure);
  if (failure) return from_errno("cannot read " + printable(path.string()), failure.value());
  return check_path((path.parent_path() / target).lexically_normal(), above, trust, links);
}

}  // namespace

Trust Trust::own() { return {.user = ::geteuid(), .group = ::getegid()}; }

Status check_entry_trusted(const std::string& path, const Trust& trust) {
  struct stat entry {};
  if (::lstat(path.c_str(), &entry) == 0) return check_entry(path, entry, false, trust);
  if (errno == ENOENT) return {};
  return from_errno("cannot read " + printable(path), errno);
}

Status check_trusted(const std::string& path, const Trust& trust) {
  if (path.empty() || path[0] != '/') {
    return bad_request(fmt::format("'{}' is not an absolute path", printable(path)), "it begins with '/'");
  }
  int links = 0;
  return check_path(fs::path(path).lexically_normal(), false, trust, links);
}

}  // namespace sublet::compose
