// SPDX-License-Identifier: Apache-2.0
#include "actor/group_files.h"

#include "base/directory.h"
#include "proc/pidfd.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

namespace sublet::actor {
namespace {

constexpr int deepest = 32;
constexpr int most_swept = 20'000;

class Sweep {
 public:
  using Found = std::function<void(LeaseId, const std::string& path, int group)>;
  Sweep(const std::string& name, const Found& found) : name_(name), found_(found) {}

  void walk(const std::string& path, int depth) {
    const Directory entries(::opendir(path.c_str()));
    if (!entries || depth > deepest) return;
    while (const dirent* entry = ::readdir(entries.get())) {
      if (entry->d_type != DT_DIR || entry->d_name[0] == '.' || ++swept_ > most_swept) continue;
      const std::string below = fmt::format("{}/{}", path, entry->d_name);
      walk(below, depth + 1);
      if (name_ == entry->d_name) name_group(below);
    }
  }

 private:
  void name_group(const std::string& path) {
    const Fd dir = open_group(AT_FDCWD, path.c_str());
    if (!dir || !is_ours(dir.get())) return;
    const Directory entries(::opendir(path.c_str()));
    while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
      if (entry->d_type != DT_DIR || std::strncmp(entry->d_name, "lease-", 6) != 0) continue;
      const auto lease = parse_lease_id(entry->d_name);
      const Fd group = lease ? open_group(dir.get(), entry->d_name) : Fd();
      if (group && is_ours(group.get())) found_(*lease, fmt::format("{}/{}", path, entry->d_name), group.get());
    }
    (void)::rmdir(path.c_str());  // refused unless the directory is empty
  }

  const std::string& name_;
  const Found& found_;
  int swept_ = 0;
};

}  // namespace

bool is_ours(int dir) {
  struct stat made {};
  return ::fstat(dir, &made) == 0 && made.st_uid == ::geteuid() && (made.st_mode & 022) == 0;
}

Fd open_group(int at, const char* path) {
  return Fd(::openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

Fd make_group(int above, const std::string& name, bool& was_there) {
  was_there = ::mkdirat(above, name.c_str(), 0755) != 0;
  if (was_there && errno != EEXIST) return {};
  return open_group(above, name.c_str());
}

int write_pid(int group, std::int32_t pid) {
  return write_word(group, "cgroup.procs", std::to_string(pid)) ? 0 : errno;
}

bool write_word(int group, const char* file, std::string_view word) {
  const Fd fd(::openat(group, file, O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return false;
  ssize_t wrote = 0;
  do {
    wrote = ::write(fd.get(), word.data(), word.size());
  } while (wrote < 0 && errno == EINTR);
  return wrote == static_cast<ssize_t>(word.size());
}

int move_process(const proc::ProcRoot& root, int to, std::int32_t pid, int pidfd, const HomeOf& home_of) {
  if (proc::is_dead(pidfd)) return ESRCH;
  const int problem = write_pid(to, pid);
  if (problem != 0 || !proc::is_dead(pidfd)) return problem;
  // The process ended just then, so another process may have had the number when it was written. Such a process was
  // born after our check, in the group of its parent.
  const auto born = root.read(pid);
  const std::string where = born && !born->dead() ? home_of(born->ppid) : std::string();
  const Fd home = where.empty() ? Fd() : open_group(AT_FDCWD, where.c_str());
  if (home) (void)write_pid(home.get(), pid);
  return ESRCH;
}

void each_lease_group(const std::string& top, const std::string& name, const Sweep::Found& found) {
  Sweep(name, found).walk(top, 0);
}

}  // namespace sublet::actor
