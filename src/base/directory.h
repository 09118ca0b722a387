// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fd.h"
#include "base/units.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <memory>
#include <string>

namespace sublet {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

// A directory that is read with readdir(). Owns the descriptor.
using Directory = std::unique_ptr<DIR, CloseDirectory>;

// Takes the descriptor over. Returns null, with errno set, if the descriptor is not that of a directory.
inline Directory read_directory(Fd opened) {
  Directory directory(::fdopendir(opened.get()));
  if (directory) opened.release();
  return directory;
}

// The disk space of the files in a directory, without those in directories below. Looks at the first few thousand
// names. Zero: it cannot be read.
inline Bytes disk_use(const std::string& path) {
  constexpr int most_names = 4096;
  constexpr std::int64_t unit_of_blocks = 512;
  const Directory directory = read_directory(Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
  Bytes sum;
  if (!directory) return sum;
  for (int i = 0; i < most_names; ++i) {
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    struct stat info {};
    const bool known = ::fstatat(::dirfd(directory.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (known && S_ISREG(info.st_mode)) sum += Bytes{info.st_blocks * unit_of_blocks};
  }
  return sum;
}

}  // namespace sublet
