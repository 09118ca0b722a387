// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fd.h"

#include <dirent.h>
#include <memory>

namespace sublet {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

// A directory that is being read, by readdir(); closed with it.
using Directory = std::unique_ptr<DIR, CloseDirectory>;

// Takes the descriptor over. Null, with errno set, if it is not that of a directory.
inline Directory read_directory(Fd opened) {
  Directory directory(::fdopendir(opened.get()));
  if (directory) opened.release();
  return directory;
}

}  // namespace sublet
