// SPDX-License-Identifier: Apache-2.0
#include "actor/records.h"

#include "base/directory.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <optional>

namespace sublet::actor {
namespace {

constexpr int new_file = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;

// Parses "START PID START UID": the start time of the helper whose pid is the file's name, the process, and their user.
std::optional<Records::Record> parse(const char* name, const char* text) {
  Records::Record record;
  int end = 0;
  if (std::sscanf(name, "%" SCNd32 "%n", &record.helper.pid, &end) != 1 || name[end] != '\0') return {};
  const int found = std::sscanf(text, "%" SCNu64 " %" SCNd32 " %" SCNu64 " %" SCNu32 "\n%n", &record.helper.start_ticks,
                                &record.process.pid, &record.process.start_ticks, &record.uid, &end);
  if (found != 4 || text[end] != '\0' || record.helper.pid <= 1 || record.process.pid <= 1) return {};
  return record;
}

std::string name_of(const Records::Limit& limit) { return fmt::format("swap-{}-{}", limit.device, limit.inode); }

// Parses "BEFORE PATH" for the group that the file is named after. The kernel allows no newline in a group's name.
std::optional<Records::Limit> parse_limit(const std::string& name, const std::string& text) {
  Records::Limit limit;
  const std::size_t space = text.find(' '), end = text.find('\n');
  if (space == std::string::npos || end != text.size() - 1) return {};
  limit.before = text.substr(0, space);
  limit.path = text.substr(space + 1, end - space - 1);
  const bool known = limit.before == "max" || limit.before.find_first_not_of("0123456789") == std::string::npos;
  const int found = std::sscanf(name.c_str(), "swap-%" SCNu64 "-%" SCNu64, &limit.device, &limit.inode);
  if (limit.before.empty() || !known || !limit.path.starts_with('/') || found != 2 || name_of(limit) != name) return {};
  return limit;
}

}  // namespace

Records::Records(const std::string& directory) {
  if (directory.empty()) return;
  ::mkdir(directory.c_str(), 0700);
  Fd opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!opened || ::fstat(opened.get(), &info) != 0) {
    fmt::print(stderr, "sublet-actor: cannot keep records in {}: {}\n", directory, std::strerror(errno));
  } else if (info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) {
    fmt::print(stderr, "sublet-actor: keeps no records in {}: other users may write there\n", directory);
  } else {
    directory_ = std::move(opened);
  }
}

// Calls `found` for each file whose name begins with one of `first`, with its text. Removes the file if `found` refuses
// it: its writer died half way, before it did the thing that the record would describe.
template <typename Found>
void Records::each(const char* first, Found found) const {
  if (!directory_) return;
  // A separate descriptor: closing the stream closes it.
  const Directory entries = read_directory(Fd(::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
    if (std::strchr(first, entry->d_name[0]) == nullptr) continue;
    const Fd file(::openat(directory_.get(), entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (!file) continue;  // for example, no descriptor is free
    std::array<char, 8192> text{};
    const ssize_t size = ::read(file.get(), text.data(), text.size() - 1);
    if (size <= 0 || !found(entry->d_name, text.data())) ::unlinkat(directory_.get(), entry->d_name, 0);
  }
}

std::vector<Records::Record> Records::read() const {
  std::vector<Record> records;
  each("0123456789", [&](const char* name, const char* text) {
    const auto record = parse(name, text);
    if (record) records.push_back(*record);
    return record.has_value();
  });
  return records;
}

// If the record cannot be written (no space, say), the next actor does not know the helper. The helper is still
// started, because a paused process must be resumed in any case.
void Records::write(const Record& record) const {
  if (!directory_) return;
  const std::string name = std::to_string(record.helper.pid);
  const std::string text = fmt::format("{} {} {} {}\n", record.helper.start_ticks, record.process.pid,
                                       record.process.start_ticks, record.uid);
  const Fd file(::openat(directory_.get(), name.c_str(), new_file, 0600));
  if (file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) return;
  fmt::print(stderr, "sublet-actor: cannot record a helper: {}\n", std::strerror(errno));
}

void Records::remove(pid_t helper) const {
  if (directory_) ::unlinkat(directory_.get(), std::to_string(helper).c_str(), 0);
}

std::vector<Records::Limit> Records::limits() const {
  std::vector<Limit> limits;
  each("s", [&](const char* name, const char* text) {
    auto limit = parse_limit(name, text);
    if (limit) limits.push_back(std::move(*limit));
    return limit.has_value();
  });
  return limits;
}

bool Records::write(const Limit& limit) const {
  if (!directory_) return true;
  const std::string name = name_of(limit), text = fmt::format("{} {}\n", limit.before, limit.path);
  const Fd file(::openat(directory_.get(), name.c_str(), new_file, 0600));
  if (file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) return true;
  const int problem = errno;
  if (file) remove(limit);
  errno = problem;
  return false;
}

void Records::remove(const Limit& limit) const {
  if (directory_) ::unlinkat(directory_.get(), name_of(limit).c_str(), 0);
}

}  // namespace sublet::actor
