// SPDX-License-Identifier: Apache-2.0
#include "machine/terminals.h"

#include "base/directory.h"
#include "base/fd.h"
#include "base/text.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sublet::machine {

int write_to_terminals(std::uint32_t uid, std::string_view text, const std::string& directory) {
  const Directory entries(::opendir(directory.c_str()));
  const std::string line = fmt::format("\r\n{}\r\n", printable(text));
  int told = 0;
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
    struct stat info {};
    const bool listed = ::fstatat(::dirfd(entries.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0;
    // `mesg n` takes the right to write from the group.
    if (!listed || !S_ISCHR(info.st_mode) || info.st_uid != uid || (info.st_mode & S_IWGRP) == 0) continue;
    const Fd terminal(
        ::openat(::dirfd(entries.get()), entry->d_name, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (terminal && ::write(terminal.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size())) ++told;
  }
  return told;
}

}  // namespace sublet::machine
