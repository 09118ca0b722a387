// SPDX-License-Identifier: Apache-2.0
#include "actor/swap_keeper.h"

#include "base/fd.h"
#include "proc/swap.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace sublet::actor {
namespace {

// The swap limit of a group. Opened as ourselves or, if root lacks the right to write to any file, as the file's owner.
class SwapLimit {
 public:
  explicit SwapLimit(const std::string& group)
      : group_(::open(group.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {
    if (!group_ || ::fstat(group_.get(), &made_) != 0) {
      problem_ = errno;
      return;
    }
    file_ = open_file();
    if (!file_) problem_ = errno;
  }
  explicit operator bool() const { return static_cast<bool>(file_); }
  int problem() const { return problem_; }  // errno, if it could not be opened
  // Whether it is the recorded group, and not a later group of the same name.
  bool is(const Records::Limit& limit) const { return made_.st_dev == limit.device && made_.st_ino == limit.inode; }
  std::uint64_t device() const { return made_.st_dev; }
  std::uint64_t inode() const { return made_.st_ino; }

  std::string read() const {
    char text[32] = {};
    const ssize_t got = ::pread(file_.get(), text, sizeof text - 1, 0);
    const std::string word(text, got > 0 ? static_cast<std::size_t>(got) : 0);
    return word.substr(0, word.find_first_of(" \n"));
  }
  bool write(const std::string& value) const {
    const std::string line = value + "\n";
    return ::pwrite(file_.get(), line.data(), line.size(), 0) == static_cast<ssize_t>(line.size());
  }

 private:
  Fd open_file() const {
    const auto opened = [&] { return ::openat(group_.get(), "memory.swap.max", O_RDWR | O_NOFOLLOW | O_CLOEXEC); };
    const uid_t us = ::geteuid();
    Fd file(opened());
    struct stat its {};
    if (file || errno != EACCES || us != 0) return file;
    if (::fstatat(group_.get(), "memory.swap.max", &its, AT_SYMLINK_NOFOLLOW) != 0) return file;
    if (::seteuid(its.st_uid) != 0) return file;
    file = Fd(opened());
    const int problem = errno;
    if (::seteuid(us) != 0) std::abort();  // continuing as another user is not safe
    errno = problem;
    return file;
  }

  Fd group_, file_;
  struct stat made_ {};
  int problem_ = 0;
};

std::string trouble(const std::string& path, int error) {
  return fmt::format("{}/memory.swap.max: {}", path, std::strerror(error));
}

}  // namespace

SwapKeeper::SwapKeeper(const proc::ProcRoot& root, const Records* records) : root_(root), records_(records) {}

void SwapKeeper::open() {
  auto found = proc::find_hierarchies(root_);
  hierarchies_ = found ? std::move(*found) : proc::Hierarchies{};
  if (records_ == nullptr) return;
  for (Records::Limit& limit : records_->limits()) {
    const std::string path = limit.path;
    kept_.try_emplace(path, Kept{std::move(limit), {}});
  }
}

std::string SwapKeeper::keep(LeaseId lease, std::int32_t pid, std::uint32_t uid) {
  const auto groups = proc::cgroups_of(root_, pid);
  const auto group = groups ? proc::swap_group(hierarchies_, *groups) : std::nullopt;
  if (!group) return "none of the process's control groups has a limit on swap space (memory.swap.max)";
  const SwapLimit limit(group->path);
  std::set<LeaseId> by;
  if (const auto kept = kept_.find(group->path); kept != kept_.end()) {
    if (!limit) return trouble(group->path, limit.problem());
    const bool same = limit.is(kept->second.limit);
    if (same && limit.read() == "0") return kept->second.by.insert(lease), std::string();
    // Another group has the name now, or another program has set a new limit meanwhile. A new limit is intended and
    // will be restored.
    if (same) by = std::move(kept->second.by);
    forget(kept->second.limit);
    kept_.erase(kept);
  }
  if (group->stopped) return {};  // not stopped by us, so not ours to undo
  if (!limit) return trouble(group->path, limit.problem());
  if (const Status alone = proc::belongs_to(root_, group->path, uid); !alone) return alone.error().detail;
  const Records::Limit now{
      .path = group->path, .device = limit.device(), .inode = limit.inode(), .before = limit.read()};
  if (now.before.empty()) return trouble(group->path, EIO);
  if (records_ != nullptr && !records_->write(now))
    return fmt::format("cannot record the swap limit of {}: {}", now.path, std::strerror(errno));
  if (!limit.write("0")) {
    const int problem = errno;
    forget(now);
    return trouble(group->path, problem);
  }
  by.insert(lease);
  kept_.insert_or_assign(group->path, Kept{now, std::move(by)});
  return {};
}

std::string SwapKeeper::let(LeaseId lease) {
  for (auto& [path, kept] : kept_) kept.by.erase(lease);
  return all_named_ ? give_back() : std::string();
}

std::string SwapKeeper::let_others() {
  all_named_ = true;
  return give_back();
}

std::string SwapKeeper::give_back() {
  std::string why_not;
  for (auto entry = kept_.begin(); entry != kept_.end();) {
    const auto& [path, kept] = *entry;
    if (!kept.by.empty()) {
      ++entry;
      continue;
    }
    const SwapLimit limit(path);
    const bool gone = limit ? !limit.is(kept.limit) : limit.problem() == ENOENT;
    // A limit that another program has set meanwhile is intended.
    const bool done = limit && !gone && (limit.read() != "0" || limit.write(kept.limit.before));
    if (!gone && !done) {
      why_not = trouble(path, limit ? errno : limit.problem());
      ++entry;
      continue;
    }
    forget(kept.limit);
    entry = kept_.erase(entry);
  }
  return why_not;
}

void SwapKeeper::forget(const Records::Limit& limit) const {
  if (records_ != nullptr) records_->remove(limit);
}

}  // namespace sublet::actor
