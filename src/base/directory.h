// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fd.h"

#include <dirent.h>
#include <memory>

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

}  // namespace sublet
