// SPDX-License-Identifier: Apache-2.0
#include "base/descriptors.h"

#include "base/directory.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>

namespace sublet {
namespace {

constexpr long call_close_range = 436;

void close_others(int keep) {
  const auto close_range = [](unsigned first, unsigned last) {
    return first > last || ::syscall(call_close_range, first, last, 0) == 0;
  };
  if (keep < 3
          ? close_range(3, UINT_MAX)
          : close_range(3, static_cast<unsigned>(keep) - 1) && close_range(static_cast<unsigned>(keep) + 1, UINT_MAX)) {
    return;
  }
  // For kernels before 5.9, and sandboxes that do not know the call.
  const Directory dir(::opendir("/proc/self/fd"));
  if (!dir) return;
  while (const dirent* entry = ::readdir(dir.get())) {
    int fd = -1;
    std::from_chars(entry->d_name, entry->d_name + std::strlen(entry->d_name), fd);
    if (fd > 2 && fd != keep && fd != ::dirfd(dir.get())) ::close(fd);
  }
}

}  // namespace

void shed_descriptors(int keep) {
  close_others(keep);
  if (keep >= 0) ::fcntl(keep, F_SETFD, FD_CLOEXEC);
  for (int fd = 0; fd <= 2; ++fd) {
    // open() takes the lowest free number, which is this one.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)!::open("/dev/null", O_RDWR);
  }
}

void occupy_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    // open() takes the lowest free number, which is this one.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)!::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace sublet
