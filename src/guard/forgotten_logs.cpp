// SPDX-License-Identifier: Apache-2.0
#include "guard/forgotten_logs.h"

#include "base/clock.h"
#include "base/directory.h"
#include "base/fd.h"
#include "base/number.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace sublet::guard {
namespace {

// A user may fill the own directory, and the loop waits for this. Later calls go on.
constexpr std::size_t most_names = 1000;
constexpr std::int64_t kept_seconds = 7 * 86400;

std::vector<std::string> names_in(const Fd& opened, bool& cut) {
  std::vector<std::string> names;
  const Directory directory =
      read_directory(Fd(::openat(opened.get(), ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
  if (!directory) return names;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (names.size() == most_names) {
      cut = true;
      break;
    }
    names.emplace_back(entry->d_name);
  }
  return names;
}

// The number in "program-7.log", "program-7.log.1" and "program-7.log.lock".
std::optional<std::uint64_t> number_of(std::string_view name) {
  constexpr std::string_view before = "program-", after = ".log";
  if (!name.starts_with(before)) return {};
  name.remove_prefix(before.size());
  const auto digits = name.substr(0, name.find('.'));
  name.remove_prefix(digits.size());
  if (!name.starts_with(after)) return {};
  name.remove_prefix(after.size());
  const bool ours =
      name.empty() || name == ".lock" || (name.starts_with('.') && parse_number<int>(name.substr(1)).value_or(0) > 0);
  return ours ? parse_number<std::uint64_t>(digits) : std::nullopt;
}

// Whether a keeper has the lock, or may have it.
bool is_locked(int directory, std::uint64_t number) {
  const std::string name = fmt::format("program-{}.log.lock", number);
  const Fd lock(::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!lock) return errno != ENOENT;
  return ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
}

bool is_old(int directory, const std::vector<std::string>& names) {
  const std::int64_t now = wall_time().ns / 1'000'000'000;
  return std::ranges::all_of(names, [&](const std::string& name) {
    struct stat info {};
    return ::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || now - info.st_mtime > kept_seconds;
  });
}

}  // namespace

bool remove_forgotten_logs(const std::string& dir, const LogNumbers& known, const LogNumbers& removed) {
  bool left = false;
  const Fd parent(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!parent) return false;
  for (const std::string& uid : names_in(parent, left)) {
    if (!parse_number<std::uint32_t>(uid)) continue;
    const Fd place(::openat(parent.get(), uid.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!place) continue;
    std::map<std::uint64_t, std::vector<std::string>> forgotten;
    for (std::string& name : names_in(place, left))
      if (const auto number = number_of(name); number && !known.contains(*number))
        forgotten[*number].push_back(std::move(name));
    for (const auto& [number, names] : forgotten) {
      const bool on_request = removed.contains(number);
      if (!on_request && !is_old(place.get(), names)) continue;
      if (is_locked(place.get(), number)) {
        left = left || on_request;
        continue;
      }
      for (const std::string& name : names) (void)::unlinkat(place.get(), name.c_str(), 0);
    }
  }
  return left;
}

}  // namespace sublet::guard
