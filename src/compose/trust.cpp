// SPDX-License-Identifier: Apache-2.0
#include "compose/trust.h"

#include "base/text.h"

#include <fmt/format.h>

#include <sys/stat.h>
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

Status check_entry(const std::string& path, const struct stat& entry, bool above, const Trust& trust) {
  if (entry.st_uid != 0 && entry.st_uid != trust.user) {
    return unsafe(path, fmt::format("belongs to uid {}", entry.st_uid),
                  trust.user == 0 ? "give it to root: its content is run with the rights of root"
                                  : fmt::format("give it to root or uid {}", trust.user));
  }
  if (S_ISLNK(entry.st_mode)) return {};
  // In a directory with this bit only the owner of a file renames the file.
  if (above && S_ISDIR(entry.st_mode) && (entry.st_mode & S_ISVTX) != 0) return {};
  const bool group = (entry.st_mode & S_IWGRP) != 0 && entry.st_gid != 0 && entry.st_gid != trust.group;
  if (group || (entry.st_mode & S_IWOTH) != 0) {
    return unsafe(path, fmt::format("can be written by {}", group ? "its group" : "everybody"),
                  "take this right away: its content is run with the rights of root");
  }
  return {};
}

Status check_path(const fs::path& path, bool above, const Trust& trust, int& links) {
  if (path.has_relative_path()) {
    if (auto safe = check_path(path.parent_path(), true, trust, links); !safe) return safe;
  }
  struct stat entry {};
  if (::lstat(path.c_str(), &entry) != 0) {
    if (errno == ENOENT) return not_found(fmt::format("{} does not exist", printable(path.string())));
    return from_errno("cannot read " + printable(path.string()), errno);
  }
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

Status check_trusted(const std::string& path, const Trust& trust) {
  if (path.empty() || path[0] != '/') {
    return bad_request(fmt::format("'{}' is not an absolute path", printable(path)), "it begins with '/'");
  }
  int links = 0;
  return check_path(fs::path(path).lexically_normal(), false, trust, links);
}

}  // namespace sublet::compose
