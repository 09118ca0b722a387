// SPDX-License-Identifier: Apache-2.0
#include "actor/keeper_start.h"

#include "actor/become.h"
#include "actor/keeper_service.h"
#include "proc/detached.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

namespace sublet::actor {
namespace {

constexpr int above_fixed_descriptors = 10;
constexpr std::uint32_t no_user = 0xffffffff, overflow_user = 65534;

bool is_sealed(const Fd& document) {
  constexpr int seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK;
  const int found = ::fcntl(document.get(), F_GET_SEALS);
  return found >= 0 && (found & seals) == seals;
}

StartedKeeper refused(Code code, std::string why, int error = 0) { return {code, error, std::move(why), Fd()}; }

std::string failure(std::string_view what, const std::string& path) {
  return fmt::format("cannot {} {}: {}", what, path, std::strerror(errno));
}

// The first child ends at once, so the keeper has no parent that must wait for it.
bool fork_keeper(const KeeperBecoming& keeper) {
  const pid_t first = ::fork();
  if (first == 0) {
    const pid_t second = ::fork();
    if (second == 0) become_keeper(keeper);
    ::_exit(second < 0 ? 1 : 0);
  }
  int status = 1;
  if (first < 0) return false;
  while (::waitpid(first, &status, 0) < 0 && errno == EINTR) {
  }
  errno = EAGAIN;
  return status == 0;
}

}  // namespace

std::string make_log_directory(const std::string& logs, std::uint32_t uid, gid_t group) {
  constexpr int flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  if (::mkdir(logs.c_str(), 0711) != 0 && errno != EEXIST) return failure("create", logs);
  const Fd parent(::open(logs.c_str(), O_PATH | flags));
  struct stat info {};
  if (!parent || ::fstat(parent.get(), &info) != 0) return failure("open", logs);
  if ((info.st_mode & 022) != 0) return fmt::format("other users may write to {}", logs);
  const std::string name = fmt::format("{}", uid), path = logs + "/" + name;
  if (::mkdirat(parent.get(), name.c_str(), 0700) != 0 && errno != EEXIST) return failure("create", path);
  const Fd place(::openat(parent.get(), name.c_str(), O_PATH | flags));
  if (!place || ::fstat(place.get(), &info) != 0) return failure("open", path);
  const bool done = info.st_gid == group && (info.st_mode & 07777) == 02770;
  if (info.st_uid == uid && (done || uid != ::geteuid())) return {};
  if (info.st_uid != ::geteuid()) return fmt::format("{} belongs to uid {}", path, info.st_uid);
  // The directory is ours until its last step, so an interrupted attempt is repeated.
  const Fd directory(::openat(place.get(), ".", O_RDONLY | flags));
  if (!directory) return failure("open", path);
  if (::fchown(directory.get(), static_cast<uid_t>(-1), group) != 0) return failure("set the group of", path);
  if (::fchmod(directory.get(), 02770) != 0) return failure("set the mode of", path);
  if (::fchown(directory.get(), uid, static_cast<gid_t>(-1)) != 0) return failure("set the owner of", path);
  return {};
}

Refusal check_keeper_order(const KeeperOptions& options, std::uint32_t uid, const Fd& document, bool others) {
  if (uid == no_user || uid == overflow_user) return {Code::denied, fmt::format("uid {} is no user", uid)};
  if (uid == 0 && !options.for_root) return {Code::denied, "only a daemon of root starts programs of root"};
  if (uid != ::geteuid() && (!others || ::geteuid() != 0))
    return {Code::denied, fmt::format("the actor may not become uid {}", uid)};
  if (!is_sealed(document)) return {Code::descriptors, "the document is not sealed"};
  if (!options.service.empty()) return {};
  if (options.program.empty()) return {Code::failed, "sublet-keep is not in the directory of sublet-actor"};
  if (options.logs.empty()) return {Code::failed, "sublet-actor runs without --logs"};
  return {};
}

StartedKeeper start_keeper(const KeeperOptions& options, std::uint32_t uid, const Fd& document, bool others) {
  if (auto no = check_keeper_order(options, uid, document, others); no.code != Code::ok)
    return refused(no.code, std::move(no.why));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return refused(Code::failed, "no descriptors are free", errno);
  Fd report(ends[0]), low(ends[1]);
  if (!options.service.empty()) {
    if (std::string why = hand_keeper_over(options.service, uid, document.get(), low.get()); !why.empty())
      return refused(Code::failed, std::move(why), errno);
    return {.report = std::move(report)};
  }
  if (std::string why = make_log_directory(options.logs, uid, options.group); !why.empty())
    return refused(Code::failed, std::move(why), errno);
  const Fd written(::fcntl(low.get(), F_DUPFD_CLOEXEC, above_fixed_descriptors));
  const Fd text(::fcntl(document.get(), F_DUPFD_CLOEXEC, above_fixed_descriptors));
  if (!written || !text) return refused(Code::failed, "no descriptors are free", errno);
  low.reset();
  if (!fork_keeper({.uid = uid, .program = options.program, .document = text.get(), .report = written.get()}))
    return refused(Code::failed, "no process can be started", errno);
  return {.report = std::move(report)};
}

}  // namespace sublet::actor
