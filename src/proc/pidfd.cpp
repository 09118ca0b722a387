// SPDX-License-Identifier: Apache-2.0
#include "proc/pidfd.h"

#include <fmt/format.h>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace sublet::proc {
namespace {

// Numbers of system calls that are newer than the build's headers.
constexpr long call_pidfd_send_signal = 424;
constexpr long call_pidfd_open = 434;
constexpr int option_peer_pidfd = 77;
constexpr long pidfs_magic = 0x50494446;
constexpr uid_t default_overflow_id = 65534;

Result<Fd> open_by_pid(std::int32_t pid) {
  if (pid <= 0) return not_found(fmt::format("{} is not a process id", pid));
  Fd fd(static_cast<int>(::syscall(call_pidfd_open, pid, 0)));  // always close-on-exec
  if (fd) return fd;
  const int problem = errno;
  if (problem == ESRCH) return not_found(fmt::format("process {} does not exist", pid));
  // EINVAL: the number is a thread id, not a process id.
  if (problem == EINVAL) return not_found(fmt::format("{} is a thread, not a process", pid));
  return from_errno(fmt::format("cannot open process {}", pid), problem);
}

uid_t overflow_uid(const ProcRoot& root) {
  const auto text = root.read_file("sys/kernel/overflowuid", 32);
  if (!text) return default_overflow_id;
  const unsigned long id = std::strtoul(text->c_str(), nullptr, 10);
  return id == 0 ? default_overflow_id : static_cast<uid_t>(id);
}

// Returns the pid of the process behind a pidfd in our pid namespace. 0: the process has no pid there, or has ended.
std::int32_t pid_behind(const ProcRoot& root, int pidfd) {
  const auto text = root.read_file(fmt::format("self/fdinfo/{}", pidfd), 4096);
  if (!text) return 0;
  const auto at = text->find("\nPid:");
  if (at == std::string::npos) return 0;
  const long pid = std::strtol(text->c_str() + at + 5, nullptr, 10);
  return pid > 0 ? static_cast<std::int32_t>(pid) : 0;
}

}  // namespace

Result<HeldProcess> hold_process(const ProcRoot& root, std::int32_t pid) {
  auto fd = open_by_pid(pid);
  if (!fd) return fd.error();
  auto info = root.read(pid);
  if (!info) return info.error();
  // The process still lives after its entry was read, so the entry was its own: the kernel reuses a pid only after the
  // process was reaped.
  if (is_dead(fd->get())) return not_found(fmt::format("process {} has ended", pid));
  return HeldProcess{std::move(*fd), std::move(*info)};
}

Result<Fd> open_pidfd(const ProcRoot& root, ProcessRef process) {
  auto held = hold_process(root, process.pid);
  if (!held) return held.error();
  if (held->info.ref != process) {
    return not_found(
        fmt::format("process {}, started at tick {}, has ended: another process, started at tick {}, has its pid now",
                    process.pid, process.start_ticks, held->info.ref.start_ticks));
  }
  return std::move(held->pidfd);
}

Result<ProcessInfo> process_behind(const ProcRoot& root, int pidfd) {
  const auto text = root.read_file(fmt::format("self/fdinfo/{}", pidfd), 4096);
  if (!text || text->find("\nPid:") == std::string::npos)
    return bad_request("the descriptor does not refer to a process");
  if (is_dead(pidfd)) return not_found("the process has ended");
  const std::int32_t pid = pid_behind(root, pidfd);
  if (pid == 0) return bad_request("the process is in another pid namespace");
  auto info = root.read(pid);
  // The same order as in hold_process(): read first, then check that the process still lives.
  if (info && is_dead(pidfd)) return not_found("the process has ended");
  return info;
}

bool is_dead(int pidfd) {
  pollfd entry{pidfd, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&entry, 1, 0);
  } while (ready < 0 && errno == EINTR);
  // POLLHUP: newer kernels report that the process was reaped meanwhile.
  return ready > 0 && (entry.revents & (POLLIN | POLLHUP)) != 0;
}

Status send_signal(int pidfd, int signal) {
  if (::syscall(call_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0) return {};
  const int problem = errno;
  if (problem == ESRCH) return not_found("the process has ended");
  if (problem == EPERM) {
    return denied(fmt::format("signal {} to the process is not permitted", signal), "it belongs to another user");
  }
  return from_errno(fmt::format("cannot send signal {}", signal), problem);
}

std::optional<std::uint64_t> pidfd_inode(int pidfd) {
  struct statfs fs {};
  struct stat file {};
  if (::fstatfs(pidfd, &fs) != 0 || fs.f_type != pidfs_magic) return std::nullopt;
  if (::fstat(pidfd, &file) != 0) return std::nullopt;
  return file.st_ino;
}

Result<Peer> peer_of(const ProcRoot& root, int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return from_errno("cannot identify the peer of the connection", errno);
  }
  Peer peer;
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  peer.pid = credentials.pid;
  peer.anonymous = credentials.pid <= 0 || credentials.uid == overflow_uid(root);
  if (peer.anonymous) return peer;

  int raw = -1;
  size = sizeof raw;
  if (::getsockopt(socket, SOL_SOCKET, option_peer_pidfd, &raw, &size) == 0) {
    Fd pidfd(raw);
    const auto info = root.read(peer.pid);
    // The same order as in hold_process(): read first, then check that the process still lives.
    if (info && !is_dead(pidfd.get()) && pid_behind(root, pidfd.get()) == peer.pid) {
      peer.process = info->ref;
      peer.pidfd = std::move(pidfd);
      peer.exact = true;
    }
    return peer;
  }
  const int problem = errno;
  // The kernel knows the call, and the process is gone. A lookup of its pid could find another process.
  if (problem != ENOPROTOOPT && problem != EOPNOTSUPP) return peer;
  auto held = hold_process(root, peer.pid);
  if (held) {
    peer.process = held->info.ref;
    peer.pidfd = std::move(held->pidfd);
  }
  return peer;
}

IdentityReport identity_report(const ProcRoot& root) {
  IdentityReport report;
  utsname names{};
  if (::uname(&names) == 0) report.kernel = names.release;
  if (auto boot = root.boot_id()) report.boot_id = *boot;
  const auto self = open_by_pid(::getpid());
  if (self) {
    report.pidfd = ::syscall(call_pidfd_send_signal, self->get(), 0, nullptr, 0) == 0;
    report.unique_inode = pidfd_inode(self->get()).has_value();
  }
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
    const Fd near(pair[0]), far(pair[1]);
    int raw = -1;
    socklen_t size = sizeof raw;
    report.peer_pidfd = ::getsockopt(near.get(), SOL_SOCKET, option_peer_pidfd, &raw, &size) == 0;
    const Fd owned(raw);
  }
  const char* level = !report.may_signal()  ? "none: processes are watched, but never signalled"
                      : report.unique_inode ? "pidfd with unique inode"
                                            : "pidfd, stored as boot id, pid and start time";
  report.text = fmt::format("process identity: {}; socket peers {} (kernel {})", level,
                            report.peer_pidfd ? "by pidfd" : "by pid and start time", report.kernel);
  return report;
}

}  // namespace sublet::proc
