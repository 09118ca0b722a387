// SPDX-License-Identifier: Apache-2.0
#include "proc/process_files.h"

#include "base/clock.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>

namespace sublet::proc {
namespace {

constexpr std::string_view removed_mark = " (deleted)";
// Threads may have files of their own. The limit is for all of them together.
constexpr int most_links = 200'000;

bool is_number(const char* name) { return name[0] >= '1' && name[0] <= '9'; }

// Calls `use` for each name in the directory until it returns false. Allocates nothing.
template <typename Use>
void for_each_entry(int directory, Use use) {
  struct Header {
    std::uint64_t inode;
    std::int64_t offset;
    std::uint16_t length;
    std::uint8_t type;
  };
  constexpr std::size_t name_at = 19;  // no padding before the name
  alignas(Header) std::array<char, 16384> buffer;
  for (;;) {
    const long got = ::syscall(SYS_getdents64, directory, buffer.data(), buffer.size());
    if (got <= 0) return;
    for (long at = 0; at < got;) {
      const char* entry = buffer.data() + at;
      std::uint16_t length = 0;
      std::memcpy(&length, entry + offsetof(Header, length), sizeof length);
      at += length;
      if (entry[name_at] != '.' && !use(entry + name_at)) return;
    }
  }
}

Fd open_below(int directory, const char* name, int flags) {
  return Fd(::openat(directory, name, flags | O_CLOEXEC | O_NOFOLLOW));
}

bool has_memory(int directory) {
  const Fd sizes = open_below(directory, "statm", O_RDONLY);
  std::array<char, 2> text{};
  return sizes && ::read(sizes.get(), text.data(), text.size()) == 2 && (text[0] != '0' || text[1] != ' ');
}

// Returns the file name in a line of /proc/PID/maps; "" if the memory has none. A name of anonymous memory is in
// brackets.
std::string_view mapped_file(std::string_view line) {
  for (int field = 0; field < 5; ++field) {
    const auto end = line.find(' ');
    if (end == std::string_view::npos) return {};
    line.remove_prefix(end + 1);
  }
  const auto start = line.find_first_not_of(' ');
  return start == std::string_view::npos || line[start] != '/' ? std::string_view{} : line.substr(start);
}

// Takes the user's id for this process, and keeps the capability to see files of other processes. The real id stays, so
// the user can neither signal nor trace this process. Direct calls: the wrapper would act on all threads.
bool take_effective_user(uid_t user) {
  if (::syscall(SYS_setresuid, -1, user, -1) != 0) return false;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  data[0].effective = data[0].permitted = 1U << CAP_SYS_PTRACE;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the kernel has reset it
  return ::syscall(SYS_capset, &header, data) == 0;
}

// The part of the search that runs in the child.
class Searcher {
 public:
  Searcher(int directory, const FileSearch& search, int report)
      : directory_(directory), search_(search), report_(report) {}

  void run() {
    search_open_files();
    search_map();
  }

 private:
  void say(char word) const { (void)!::write(report_, &word, 1); }

  void search_open_files() {
    search_links(directory_);
    const Fd tasks = found_ ? Fd() : open_below(directory_, "task", O_RDONLY | O_DIRECTORY);
    if (!tasks) return;  // found, or `directory` is of a thread
    for_each_entry(tasks.get(), [&](const char* thread) {
      const Fd its = is_number(thread) ? open_below(tasks.get(), thread, O_PATH | O_DIRECTORY) : Fd();
      if (its) search_links(its.get());
      return !found_ && left_ > 0;
    });
  }

  // Only the process's user may list the links, and no capability of the packaged actor overrides this.
  Fd open_links(int process) const {
    Fd links = open_below(process, "fd", O_RDONLY | O_DIRECTORY);
    struct stat file {};
    if (links || errno != EACCES || ::geteuid() != 0 || ::fstatat(process, "fd", &file, 0) != 0) return links;
    if (!take_effective_user(file.st_uid)) return links;
    return open_below(process, "fd", O_RDONLY | O_DIRECTORY);
  }

  void search_links(int process) {
    const Fd links = open_links(process);
    if (!links) return;
    for_each_entry(links.get(), [&](const char* number) {
      std::array<char, PATH_MAX> path;
      const ssize_t size = ::readlinkat(links.get(), number, path.data(), path.size());
      found_ = size > 0 && search_.is_open({path.data(), static_cast<std::size_t>(size)}, links.get(), number);
      if (found_) say('o');
      return !found_ && --left_ > 0;
    });
  }

  void search_map() const {
    const Fd map = open_below(directory_, "maps", O_RDONLY);
    static std::array<char, 65536> buffer;  // longer than any line
    std::size_t filled = 0;
    while (map) {
      const ssize_t got = ::read(map.get(), buffer.data() + filled, buffer.size() - filled);
      if (got <= 0) return;
      std::string_view text(buffer.data(), filled + static_cast<std::size_t>(got));
      for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
        const std::string_view file = mapped_file(text.substr(0, end));
        if (!file.empty() && search_.is_mapped(file)) return say('m');
        text.remove_prefix(end + 1);
      }
      std::memmove(buffer.data(), text.data(), text.size());
      filled = text.size();
    }
  }

  int directory_;
  const FileSearch& search_;
  int report_;
  int left_ = most_links;
  bool found_ = false;
};

// Reads what the child reports, until its end or the deadline.
FilesFound read_report(int report, std::int64_t deadline_ns) {
  FilesFound found;
  for (;;) {
    const std::int64_t left_ms = (deadline_ns - monotonic_ns()) / 1'000'000;
    pollfd entry{report, POLLIN, 0};
    const int ready = left_ms > 0 ? ::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left_ms, INT_MAX))) : 0;
    if (ready < 0 && errno == EINTR) continue;
    char word = 0;
    if (ready <= 0 || ::read(report, &word, 1) != 1) return found;
    if (word == 'o') found.open = true;
    if (word == 'm') found.mapped = true;
  }
}

}  // namespace

Result<Fd> open_process_files(const ProcRoot& root, std::int32_t pid) {
  auto first = root.open_directory(std::to_string(pid));
  if (!first || has_memory(first->get())) return first;
  const Fd tasks = open_below(first->get(), "task", O_RDONLY | O_DIRECTORY);
  Fd found;
  if (tasks) {
    for_each_entry(tasks.get(), [&](const char* thread) {
      Fd its = is_number(thread) ? open_below(tasks.get(), thread, O_PATH | O_DIRECTORY) : Fd();
      if (its && has_memory(its.get())) found = std::move(its);
      return !found;
    });
  }
  if (found) return found;
  return first;
}

Result<Executable> executable_of(int directory) {
  std::array<char, PATH_MAX> path;
  struct stat file {};
  const ssize_t size = ::readlinkat(directory, "exe", path.data(), path.size());
  if (size <= 0 || ::fstatat(directory, "exe", &file, 0) != 0) {
    const int problem = errno;
    if (problem == ENOENT || problem == ESRCH) return not_found("the process has ended");
    return from_errno("cannot see the executable", problem);
  }
  Executable found{.path = {path.data(), static_cast<std::size_t>(size)},
                   .device = file.st_dev,
                   .inode = file.st_ino,
                   .owner = file.st_uid,
                   .group = file.st_gid,
                   .mode = file.st_mode};
  found.removed = file.st_nlink == 0 || found.path.ends_with(removed_mark);
  if (found.path.ends_with(removed_mark)) found.path.resize(found.path.size() - removed_mark.size());
  return found;
}

FilesFound search_files(int directory, const FileSearch& search, Duration patience) {
  const std::int64_t deadline_ns = monotonic_ns() + patience.count();
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  const Fd report(ends[0]);
  Fd writer(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return {};
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == parent) Searcher(directory, search, writer.get()).run();
    ::_exit(0);
  }
  writer.reset();
  const FilesFound found = read_report(report.get(), deadline_ns);
  // A reader that waits for the map can be killed. The child was not reaped, so the pid is its own.
  ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return found;
}

}  // namespace sublet::proc
