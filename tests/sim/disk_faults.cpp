// SPDX-License-Identifier: Apache-2.0
#include "disk_faults.h"

#include <sqlite3.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace {

std::uint64_t until_failure = 0;
int failure = 0;

bool strikes() {
  if (until_failure == 0 || --until_failure > 0) return false;
  errno = failure;
  return true;
}

ssize_t watched_write(int fd, const void* data, size_t size) { return strikes() ? -1 : ::write(fd, data, size); }
ssize_t watched_pwrite(int fd, const void* data, size_t size, off_t offset) {
  return strikes() ? -1 : ::pwrite(fd, data, size, offset);
}

template <typename Function>
void replace(sqlite3_vfs* vfs, const char* name, Function* function) {
  // Which of them SQLite uses depends on how it was built.
  if (vfs->xGetSystemCall(vfs, name) != nullptr)
    vfs->xSetSystemCall(vfs, name, reinterpret_cast<sqlite3_syscall_ptr>(function));
}

}  // namespace

// SQLite's calls of these find ours first.
extern "C" int fdatasync(int fd) { return strikes() ? -1 : static_cast<int>(::syscall(SYS_fdatasync, fd)); }
extern "C" int fsync(int fd) { return strikes() ? -1 : static_cast<int>(::syscall(SYS_fsync, fd)); }

namespace sublet::sim {

void fail_disk_call(std::uint64_t n, int error) {
  until_failure = n;
  failure = error;
}

void watch_disk_calls() {
  sqlite3_vfs* vfs = sqlite3_vfs_find("unix");
  replace(vfs, "write", watched_write);
  replace(vfs, "pwrite", watched_pwrite);
  replace(vfs, "pwrite64", watched_pwrite);
}

}  // namespace sublet::sim
