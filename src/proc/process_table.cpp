// SPDX-License-Identifier: Apache-2.0
#include "proc/process_table.h"

#include "base/text.h"

#include <fmt/format.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace sublet::proc {
namespace {

constexpr std::size_t command_limit = 4096;
constexpr unsigned kernel_thread_flag = 0x00200000;  // PF_KTHREAD

// The layout of getdents64.
struct DirEntry {
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t length;
  std::uint8_t type;
  char name[1];
};

std::int32_t parse_pid(std::string_view name) {
  std::int32_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  return error == std::errc{} && end == name.data() + name.size() && pid > 0 ? pid : 0;
}

bool all_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

ssize_t read_retrying(int fd, char* to, std::size_t size) {
  ssize_t got = 0;
  do {
    got = ::read(fd, to, size);
  } while (got < 0 && errno == EINTR);
  return got;
}

// Reads a file until its end or until `text` has `limit` bytes. Returns 0 or an errno.
int read_all(int fd, std::size_t limit, std::string& text) {
  std::array<char, 4096> chunk;
  while (text.size() < limit) {
    const ssize_t got = read_retrying(fd, chunk.data(), std::min(chunk.size(), limit - text.size()));
    if (got < 0) return errno;
    if (got == 0) break;
    text.append(chunk.data(), static_cast<std::size_t>(got));
  }
  return 0;
}

// Opens the directory of a process; errno is set on failure. The directory is opened first, so that owner and text
// belong to the same process even if the pid is reused meanwhile. The owner of the files inside is no substitute: root
// owns them if the process may not be dumped.
Fd open_process(int proc_dir, const char* pid) {
  return Fd(::openat(proc_dir, pid, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

std::optional<ProcessInfo> read_stat(int process_dir) {
  struct stat owner {};
  if (::fstat(process_dir, &owner) != 0) return std::nullopt;
  const Fd file(::openat(process_dir, "stat", O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::array<char, 2048> text;
  const ssize_t got = read_retrying(file.get(), text.data(), text.size());
  if (got < 0) return std::nullopt;
  auto info = parse_stat({text.data(), static_cast<std::size_t>(got)});
  if (!info) {
    errno = ESRCH;
    return std::nullopt;
  }
  info->uid = owner.st_uid;
  return info;
}

std::optional<ProcessInfo> read_process(int proc_dir, const char* pid) {
  const Fd dir = open_process(proc_dir, pid);
  return dir ? read_stat(dir.get()) : std::nullopt;
}

}  // namespace

std::optional<ProcessInfo> parse_stat(std::string_view text) {
  const auto open = text.find('(');
  const auto close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open || open < 2) return {};
  ProcessInfo info;
  info.ref.pid = parse_pid(text.substr(0, open - 1));
  if (info.ref.pid == 0) return {};
  const std::string_view comm = text.substr(open + 1, close - open - 1);
  info.comm = all_plain(comm) ? std::string(comm) : printable(comm);
  if (text.size() < close + 4) return {};
  info.state = text[close + 2];

  const char* at = text.data() + close + 3;
  const char* const end = text.data() + text.size();
  unsigned flags = 0;
  // Fields are numbered as in proc(5). Field 3, the state, has been read.
  for (int field = 4; field <= 22; ++field) {
    if (at == end || *at != ' ') return {};
    ++at;
    std::from_chars_result parsed{};
    switch (field) {
      case 4: parsed = std::from_chars(at, end, info.ppid); break;
      case 5: parsed = std::from_chars(at, end, info.pgrp); break;
      case 6: parsed = std::from_chars(at, end, info.session); break;
      case 9: parsed = std::from_chars(at, end, flags); break;
      case 20: parsed = std::from_chars(at, end, info.threads); break;
      case 22: parsed = std::from_chars(at, end, info.ref.start_ticks); break;
      default: parsed = {std::find(at, end, ' '), {}}; break;
    }
    if (parsed.ec != std::errc{} || parsed.ptr == at) return {};
    at = parsed.ptr;
  }
  if (at != end && *at != ' ' && *at != '\n') return {};
  info.kernel = (flags & kernel_thread_flag) != 0;
  return info;
}

namespace {

// Returns the numbers on the line with that name. None if there is no such whole line, or if the line has other text.
std::optional<std::vector<std::uint32_t>> numbers_of(std::string_view status, std::string_view name) {
  const auto line = status.find(name);
  if (line == std::string_view::npos) return {};
  status.remove_prefix(line + name.size());
  const auto end = status.find('\n');
  if (end == std::string_view::npos) return {};
  std::vector<std::uint32_t> numbers;
  for (const char *at = status.data(), *stop = at + end; at != stop;) {
    if (*at == '\t' || *at == ' ') {
      ++at;
      continue;
    }
    const auto parsed = std::from_chars(at, stop, numbers.emplace_back());
    if (parsed.ec != std::errc{}) return {};
    at = parsed.ptr;
  }
  return numbers;
}

}  // namespace

std::optional<Uids> parse_uids(std::string_view status) {
  const auto uids = numbers_of(status, "\nUid:");
  if (!uids || uids->size() < 3) return {};
  return Uids{(*uids)[0], (*uids)[1], (*uids)[2]};
}

std::optional<Rights> parse_rights(std::string_view status) {
  const auto uids = numbers_of(status, "\nUid:"), gids = numbers_of(status, "\nGid:");
  auto groups = numbers_of(status, "\nGroups:");
  if (!uids || !gids || !groups || uids->size() != 4 || gids->size() != 4) return {};
  Rights rights;
  std::copy(uids->begin(), uids->end(), rights.uids.begin());
  std::copy(gids->begin(), gids->end(), rights.gids.begin());
  rights.groups = std::move(*groups);
  return rights;
}

bool Rights::plain() const {
  const auto same = [](const auto& ids) {
    return std::all_of(ids.begin(), ids.end(), [&](auto id) { return id == ids[0]; });
  };
  return same(uids) && same(gids);
}

Result<ProcRoot> ProcRoot::open(const std::string& path) {
  Fd dir(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir) return from_errno(fmt::format("cannot open {}", path), errno);
  return ProcRoot(std::move(dir));
}

Result<std::vector<ProcessInfo>> ProcRoot::list() const {
  std::vector<ProcessInfo> found;
  alignas(DirEntry) std::array<char, 32768> buffer;
  if (::lseek(dir_.get(), 0, SEEK_SET) < 0) return from_errno("cannot list the processes", errno);
  for (;;) {
    const long got = ::syscall(SYS_getdents64, dir_.get(), buffer.data(), buffer.size());
    if (got < 0) return from_errno("cannot list the processes", errno);
    if (got == 0) return found;
    for (long at = 0; at < got;) {
      const char* entry = buffer.data() + at;
      std::uint16_t length = 0;
      std::memcpy(&length, entry + offsetof(DirEntry, length), sizeof length);
      const char* name = entry + offsetof(DirEntry, name);
      at += length;
      if (parse_pid(name) == 0) continue;
      if (auto info = read_process(dir_.get(), name)) {
        found.push_back(std::move(*info));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
        // An incomplete list would make living processes look ended.
        return from_errno("cannot list the processes", errno);
      }
    }
  }
}

Result<ProcessInfo> ProcRoot::read(std::int32_t pid) const {
  if (pid <= 0) return not_found(fmt::format("{} is not a process id", pid));
  auto info = read_process(dir_.get(), std::to_string(pid).c_str());
  if (info) return std::move(*info);
  const int problem = errno;
  if (problem == ENOENT || problem == ESRCH) return not_found(fmt::format("process {} does not exist", pid));
  return from_errno(fmt::format("cannot read process {}", pid), problem);
}

Result<ProcRoot::Detailed> ProcRoot::read_with(std::int32_t pid, const char* file) const {
  const auto failed = [&](int problem) {
    if (problem == ENOENT || problem == ESRCH) return not_found(fmt::format("process {} does not exist", pid));
    return from_errno(fmt::format("cannot read process {}", pid), problem);
  };
  const Fd dir = pid > 0 ? open_process(dir_.get(), std::to_string(pid).c_str()) : Fd();
  if (!dir) return failed(pid > 0 ? errno : ESRCH);
  auto info = read_stat(dir.get());
  if (!info) return failed(errno);
  const Fd other(::openat(dir.get(), file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  std::string text;
  const int problem = other ? read_all(other.get(), 65536, text) : errno;
  if (problem != 0) return failed(problem);
  return Detailed{std::move(*info), std::move(text)};
}

bool ProcRoot::has_memory(std::int32_t pid) const {
  const std::string tasks = fmt::format("{}/task", pid);
  Fd dir(::openat(dir_.get(), tasks.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const listing = dir ? ::fdopendir(dir.get()) : nullptr;
  if (listing == nullptr) return true;
  dir.release();  // the listing owns it now
  bool some = false;
  while (const dirent* entry = some ? nullptr : ::readdir(listing)) {  // NOLINT(concurrency-mt-unsafe): our own
    if (parse_pid(entry->d_name) == 0) continue;
    const auto sizes = read_file(fmt::format("{}/{}/statm", tasks, entry->d_name));
    some = sizes ? !sizes->starts_with("0 ") : sizes.error().code != Code::NotFound;
  }
  ::closedir(listing);
  return some;
}

std::string ProcRoot::command_line(std::int32_t pid) const {
  auto text = read_file(fmt::format("{}/cmdline", pid), command_limit + 1);
  if (text && !text->empty()) {
    const bool cut = text->size() > command_limit;
    if (cut) text->resize(command_limit);
    while (!text->empty() && text->back() == '\0') text->pop_back();
    std::replace(text->begin(), text->end(), '\0', ' ');
    if (!all_plain(*text)) *text = visible(*text);
    const bool grown = text->size() > command_limit;
    if (grown) {
      std::size_t keep = command_limit;
      while (keep > 0 && (static_cast<unsigned char>((*text)[keep]) & 0xc0) == 0x80) --keep;
      text->resize(keep);
    }
    if (!text->empty()) return cut || grown ? *text + "…" : *text;
  }
  const auto info = read(pid);
  return info ? fmt::format("[{}]", info->comm) : std::string();
}

Result<std::string> ProcRoot::read_file(const std::string& relative, std::size_t limit) const {
  const Fd file(::openat(dir_.get(), relative.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  const int problem = file ? read_all(file.get(), limit, text) : errno;
  if (problem == 0) return text;
  if (problem == ENOENT || problem == ESRCH) return not_found(fmt::format("{} does not exist", printable(relative)));
  return from_errno(fmt::format("cannot read {}", printable(relative)), problem);
}

Result<Fd> ProcRoot::open_directory(const std::string& relative) const {
  Fd dir(::openat(dir_.get(), relative.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (dir) return dir;
  const int problem = errno;
  if (problem == ENOENT || problem == ESRCH) return not_found(fmt::format("{} does not exist", printable(relative)));
  return from_errno(fmt::format("cannot open {}", printable(relative)), problem);
}

std::optional<std::uint32_t> ProcRoot::owner_of(const std::string& relative) const {
  struct stat info {};
  if (::fstatat(dir_.get(), relative.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return {};
  return info.st_uid;
}

bool ProcRoot::shares_namespaces(std::int32_t pid, std::string_view status) const {
  const auto pids = numbers_of(status, "\nNSpid:");  // one pid for each pid namespace, from this root's inwards
  if (!pids || pids->size() != 1) return false;
  const auto its = read_file(fmt::format("{}/uid_map", pid)), ours = read_file("self/uid_map");
  return its && ours && *its == *ours;
}

Result<std::string> ProcRoot::boot_id() const {
  auto text = read_file("sys/kernel/random/boot_id", 64);
  if (!text) return text.error();
  while (!text->empty() && text->back() == '\n') text->pop_back();
  const bool plain = std::all_of(text->begin(), text->end(),
                                 [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == '-'; });
  if (text->size() != 36 || !plain) {
    return unavailable(fmt::format("the kernel's boot id '{}' is invalid", printable(*text)));
  }
  return text;
}

}  // namespace sublet::proc
