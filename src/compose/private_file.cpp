// SPDX-License-Identifier: Apache-2.0
#include "compose/private_file.h"

#include "base/fd.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>

namespace sublet::compose {

Status replace_file(const std::string& path, const std::string& text, unsigned mode) {
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  int error = file ? 0 : errno;
  for (std::size_t at = 0; error == 0 && at < text.size();) {
    const ssize_t wrote = ::write(file.get(), text.data() + at, text.size() - at);
    if (wrote > 0) at += static_cast<std::size_t>(wrote);
    else if (wrote == 0 || errno != EINTR) error = wrote == 0 ? ENOSPC : errno;
  }
  if (error == 0 && ::rename(fresh.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  ::unlink(fresh.c_str());
  Error failure = from_errno("cannot write " + path, error);
  failure.hint = "make room on this file system";
  return failure;
}

Status write_private_file(const std::string& path, const std::string& text) { return replace_file(path, text, 0600); }

Result<std::string> read_private_file(const std::string& path, std::size_t most) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return errno == ENOENT ? not_found(path + " does not exist") : from_errno("cannot read " + path, errno);
  std::string text;
  char piece[16384];
  for (;;) {
    const ssize_t got = ::read(file.get(), piece, sizeof piece);
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return from_errno("cannot read " + path, errno);
    text.append(piece, static_cast<std::size_t>(got));
    if (text.size() > most) return bad_request(fmt::format("{} is larger than {} bytes", path, most));
  }
}

}  // namespace sublet::compose
