// SPDX-License-Identifier: Apache-2.0
// The files of a process that only its user and a privileged reader may see: its executable, and the files that it has
// open or mapped. The process chooses the names of files in its own mount namespace.
#pragma once

#include "base/units.h"
#include "proc/process_table.h"

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

namespace sublet::proc {

// Opens the directory of the process in /proc; if its first thread has ended, the directory of a thread that has
// memory. The caller must then prove that the process with this pid still lives.
Result<Fd> open_process_files(const ProcRoot& root, std::int32_t pid);

struct Executable {
  std::string path;      // as the kernel shows it, without the mark of a removed file
  bool removed = false;  // the file was removed or replaced while it ran
  dev_t device = 0;
  ino_t inode = 0;
  uid_t owner = 0;
  gid_t group = 0;
  mode_t mode = 0;
};
// NotFound: the process has ended. Any other error: we may not see it. `directory`: from open_process_files().
Result<Executable> executable_of(int directory);

// Which files are searched for. Called in a child process of this one, so the functions must not allocate or lock.
struct FileSearch {
  // `links`, `number`: a directory of links to open files, and the name of a link in it.
  std::function<bool(std::string_view path, int links, const char* number)> is_open;
  std::function<bool(std::string_view path)> is_mapped;
};
struct FilesFound {
  bool open = false;
  bool mapped = false;
};
// Searches the open files of the process, and then its mapped files. The search runs in a child process, which is
// killed after `patience`: a process can block all readers of its memory map, and open any number of files. If we are
// root without the capability for all files, the child takes the id of the process's user to list its open files.
FilesFound search_files(int directory, const FileSearch& search, Duration patience);

}  // namespace sublet::proc
