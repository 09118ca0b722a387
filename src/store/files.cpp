// SPDX-License-Identifier: Apache-2.0
#include "store/files.h"

#include "base/clock.h"
#include "base/text.h"
#include "base/units.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace sublet::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view log_suffix = "-wal";
constexpr std::string_view corrupt_mark = ".corrupt-";

fs::path with_suffix(fs::path path, std::string_view suffix) { return path += suffix; }

fs::path directory_of(const fs::path& database) {
  return database.has_parent_path() ? database.parent_path() : fs::path(".");
}

// Returns the files beside the database that were set aside, oldest first.
std::vector<fs::path> set_aside_files(const fs::path& database) {
  std::vector<fs::path> found;
  const std::string prefix = database.filename().string() + std::string(corrupt_mark);
  std::error_code error;
  for (fs::directory_iterator entry(directory_of(database), error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with(prefix)) found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Error was_set_aside(const fs::path& file, std::string_view why) {
  return unavailable(
      fmt::format("the store could not be read{} and was renamed to {}; the leases are unknown, so no lease is granted",
                  why.empty() ? std::string() : fmt::format(" ({})", why), file.string()),
      fmt::format("restore a good copy of the store; or wait until no leased program runs, move {}* to another "
                  "directory, and restart with an empty store",
                  file.string()));
}

// Returns the time now as "20261121T160005Z".
std::string stamp() {
  std::string text;
  for (const char c : format_rfc3339(SystemClock().now()).substr(0, 19)) {
    if (c != '-' && c != ':') text += c;
  }
  return text + "Z";
}

// Refuses a file that is no plain file of ours. A link, or another user's file, is not trusted with leases.
Status check_file(const fs::path& path, const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return denied(fmt::format("store {} is not a plain file", path.string()));
  if (status.st_uid != geteuid()) {
    return denied(
        fmt::format("store {} belongs to uid {}, not to the daemon's uid {}", path.string(), status.st_uid, geteuid()),
        "start the daemon as that user, or choose another store.path");
  }
  return {};
}

}  // namespace

Status prepare_directory(const fs::path& directory) {
  std::error_code error;
  if (directory.has_parent_path()) fs::create_directories(directory.parent_path(), error);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return from_errno(fmt::format("cannot create the store's directory {}", directory.string()), errno);
  }
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) {
    return from_errno(fmt::format("the store's directory {}", directory.string()), errno);
  }
  if (!S_ISDIR(status.st_mode)) {
    return bad_request(fmt::format("the store's directory {} is not a directory", directory.string()));
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0 || (status.st_uid != geteuid() && status.st_uid != 0)) {
    return denied(fmt::format("other users may write to the store's directory {} (uid {}, mode {:o})",
                              directory.string(), status.st_uid, status.st_mode & 07777),
                  fmt::format("chmod 700 {}, or choose another store.path", directory.string()));
  }
  return {};
}

Result<Fd> take_lock(const fs::path& database) {
  const fs::path path = fs::path(database).replace_extension(".lock");
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return from_errno(fmt::format("cannot open the store's lock {}", path.string()), errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    const int why = errno;
    if (why != EWOULDBLOCK) return from_errno(fmt::format("cannot lock {}", path.string()), why);
    char holder[32] = {};
    const ssize_t length = ::pread(lock.get(), holder, sizeof(holder) - 1, 0);
    std::string pid(holder, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
    pid.erase(std::find(pid.begin(), pid.end(), '\n'), pid.end());
    return Error{Code::InUse,
                 fmt::format("the store {} is in use by another daemon, pid {}", database.string(),
                             pid.empty() ? "unknown" : printable(pid)),
                 "use or stop that daemon; a second daemon needs its own --dir"};
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    // The pid is only for the message of the next daemon. A full disk must not stop this daemon from starting.
  }
  return lock;
}

Result<Site> inspect(const fs::path& database) {
  struct stat status {};
  if (::lstat(database.c_str(), &status) == 0) {
    if (auto good = check_file(database, status); !good) return good.error();
    return Site{true};
  }
  if (errno != ENOENT) return from_errno(fmt::format("store {}", database.string()), errno);
  if (const auto aside = set_aside_files(database); !aside.empty()) return was_set_aside(aside.front(), "");
  const fs::path log = with_suffix(database, log_suffix);
  if (::lstat(log.c_str(), &status) == 0 && status.st_size > 0) {
    return unavailable(fmt::format("the store {} is missing, but its log {} exists", database.string(), log.string()),
                       "put the store back, or move the log to another directory to start with an empty store");
  }
  return Site{false};
}

Error set_aside(const fs::path& database, std::string_view why) {
  const std::string base = fmt::format("{}{}{}", database.string(), corrupt_mark, stamp());
  fs::path target = base;
  for (int i = 2; fs::exists(fs::symlink_status(target)); ++i) target = fmt::format("{}.{}", base, i);
  // The database is moved first. A crash after moving only the log would leave an older state that looks healthy. The
  // log keeps SQLite's name for it, so that SQLite's tools can recover both files.
  if (::rename(database.c_str(), target.c_str()) != 0) {
    return unavailable(
        fmt::format("{}; and the file cannot be renamed: {}", why, from_errno(database.string(), errno).detail),
        "no lease is granted without a readable store; move the file away, or restore a good copy");
  }
  // If this fails, the log stays behind alone, and inspect() refuses a log without a database. An empty log holds
  // nothing.
  const fs::path log = with_suffix(database, log_suffix);
  struct stat status {};
  if (::stat(log.c_str(), &status) == 0 && status.st_size == 0) {
    (void)::unlink(log.c_str());
  } else {
    (void)::rename(log.c_str(), with_suffix(target, log_suffix).c_str());
  }
  (void)sync_directory(directory_of(database));
  return was_set_aside(target, why);
}

Status sync_directory(const fs::path& directory) {
  const Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return from_errno(fmt::format("sync of {}", directory.string()), errno);
  return {};
}

std::optional<Bytes> bytes_free(const fs::path& directory) {
  struct statvfs space {};
  if (::statvfs(directory.c_str(), &space) != 0) return std::nullopt;
  return Bytes{static_cast<std::int64_t>(space.f_bavail) * static_cast<std::int64_t>(space.f_frsize)};
}

std::string free_space(const fs::path& directory) {
  const auto free = bytes_free(directory);
  if (!free) return fmt::format("free space in {} unknown", directory.string());
  return fmt::format("{} free in {}", format_size(*free), directory.string());
}

}  // namespace sublet::store
