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

// "START PID START UID": of the helper whose pid is the file's name, of the process, and whose both are.
std::optional<Records::Record> parse(const char* name, const char* text) {
  Records::Record record;
  int end = 0;
  if (std::sscanf(name, "%" SCNd32 "%n", &record.helper.pid, &end) != 1 || name[end] != '\0') return {};
  const int found = std::sscanf(text, "%" SCNu64 " %" SCNd32 " %" SCNu64 " %" SCNu32 "\n%n", &record.helper.start_ticks,
                                &record.process.pid, &record.process.start_ticks, &record.uid, &end);
  if (found != 4 || text[end] != '\0' || record.helper.pid <= 1 || record.process.pid <= 1) return {};
  return record;
}

}  // namespace

Records::Records(const std::string& directory) {
  if (directory.empty()) return;
  ::mkdir(directory.c_str(), 0700);
  Fd opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!opened || ::fstat(opened.get(), &info) != 0) {
    fmt::print(stderr, "sublet-actor: nothing is kept of helpers in {}: {}\n", directory, std::strerror(errno));
  } else if (info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) {
    fmt::print(stderr, "sublet-actor: nothing is kept of helpers in {}: others may write there\n", directory);
  } else {
    directory_ = std::move(opened);
  }
}

std::vector<Records::Record> Records::read() const {
  std::vector<Record> records;
  if (!directory_) return records;
  // A description of its own: closing the stream closes it.
  const Directory entries = read_directory(Fd(::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;  // none of ours
    const Fd file(::openat(directory_.get(), entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    std::array<char, 128> text{};
    const ssize_t size = file ? ::read(file.get(), text.data(), text.size() - 1) : -1;
    const auto record = size > 0 ? parse(entry->d_name, text.data()) : std::nullopt;
    // Cut short by the end of who wrote it: its helper was never told anything, and ended with it.
    if (record) records.push_back(*record);
    else ::unlinkat(directory_.get(), entry->d_name, 0);
  }
  return records;
}

// Where it cannot be kept (no space, say), the helper is unknown to the next actor, and no worse: who was paused is to
// come back all the same.
void Records::write(const Record& record) const {
  if (!directory_) return;
  const std::string name = std::to_string(record.helper.pid);
  const std::string text = fmt::format("{} {} {} {}\n", record.helper.start_ticks, record.process.pid,
                                       record.process.start_ticks, record.uid);
  const Fd file(::openat(directory_.get(), name.c_str(), new_file, 0600));
  if (file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) return;
  fmt::print(stderr, "sublet-actor: a helper could not be recorded: {}\n", std::strerror(errno));
}

void Records::remove(pid_t helper) const {
  if (directory_) ::unlinkat(directory_.get(), std::to_string(helper).c_str(), 0);
}

}  // namespace sublet::actor
