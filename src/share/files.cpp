// SPDX-License-Identifier: Apache-2.0
#include "share/files.h"

#include "base/directory.h"
#include "wire/limit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <vector>

namespace sublet::share {
namespace {

constexpr off_t page_size = sizeof(sublet_share_page);
constexpr off_t header_size = offsetof(sublet_share_page, unused);

// The page of an earlier run of this daemon. Its processes may have written anything into it.
bool is_page(int file, std::uint32_t devices) {
  struct stat info {};
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size != page_size || info.st_nlink != 1 ||
      info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)
    return false;
  sublet_share_page page{};
  return ::pread(file, &page, header_size, 0) == header_size && page.size == page_size &&
         page.abi == SUBLET_LIMIT_ABI && page.devices == devices;
}

}  // namespace

Result<Fd> Files::open(LeaseId lease, std::uint32_t devices) {
  const std::string path = path_of(lease);
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file && is_page(file.get(), devices)) return file;
  if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) return from_errno("mkdir " + directory_, errno);
  ::unlink(path.c_str());
  file = Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return from_errno("open " + path, errno);
  sublet_share_page page{};
  page.size = page_size;
  page.abi = SUBLET_LIMIT_ABI;
  page.devices = devices;
  if (::pwrite(file.get(), &page, sizeof page, 0) == page_size) return file;
  const Error failure = from_errno("write " + path, errno);
  ::unlink(path.c_str());
  return failure;
}

void Files::mend(LeaseId lease) {
  struct stat info {};
  const std::string path = path_of(lease);
  if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size != page_size)
    (void)::truncate(path.c_str(), page_size);
}

void Files::remove(LeaseId lease) { ::unlink(path_of(lease).c_str()); }

void Files::keep_only(const std::set<LeaseId>& leases) {
  const Directory listed =
      read_directory(Fd(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
  if (!listed) return;
  std::vector<std::string> left;
  while (const dirent* entry = ::readdir(listed.get())) {
    const auto lease = parse_lease_id(entry->d_name);
    if (entry->d_name[0] != '.' && (!lease || !leases.contains(*lease))) left.emplace_back(entry->d_name);
  }
  for (const std::string& name : left) ::unlinkat(::dirfd(listed.get()), name.c_str(), 0);
}

}  // namespace sublet::share
