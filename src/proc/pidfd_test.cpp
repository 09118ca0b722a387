// SPDX-License-Identifier: Apache-2.0
#include "proc/pidfd.h"

#include "proc/test_support.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <cerrno>
#include <cstring>

namespace sublet::proc {
namespace {

ProcRoot real_root() { return std::move(*ProcRoot::open()); }

// Forks a child with exactly this pid, which must be free. Needs the right to choose pids.
pid_t fork_with_pid(pid_t wanted) {
  struct {
    std::uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size,
        cgroup;
  } args{};
  args.exit_signal = SIGCHLD;
  args.set_tid = reinterpret_cast<std::uint64_t>(&wanted);
  args.set_tid_size = 1;
  const long pid = ::syscall(435 /* clone3 */, &args, sizeof args);
  if (pid == 0) {
    for (;;) ::pause();
  }
  return static_cast<pid_t>(pid);
}

TEST(Pidfd, HoldsExactlyTheProcessNamed) {
  const ProcRoot root = real_root();
  Child child(sleep_for_ever);
  const auto held = hold_process(root, child.pid());
  ASSERT_TRUE(held) << held.error().detail;
  EXPECT_EQ(held->info.ref.pid, child.pid());
  EXPECT_NE(::fcntl(held->pidfd.get(), F_GETFD) & FD_CLOEXEC, 0);
  const auto fd = open_pidfd(root, held->info.ref);
  ASSERT_TRUE(fd);
  EXPECT_FALSE(is_dead(fd->get()));
  ProcessRef other = held->info.ref;
  other.start_ticks += 1;
  EXPECT_EQ(open_pidfd(root, other).error().code, Code::NotFound);

  ASSERT_TRUE(send_signal(fd->get(), SIGKILL));
  pollfd entry{fd->get(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, -1), 1);
  EXPECT_TRUE(is_dead(fd->get())) << "not reaped yet, and dead";
  EXPECT_EQ(open_pidfd(root, held->info.ref).error().code, Code::NotFound) << "a zombie is not held";
  EXPECT_EQ(WTERMSIG(child.reap()), SIGKILL);
  EXPECT_TRUE(is_dead(fd->get()));
  EXPECT_EQ(send_signal(fd->get(), SIGKILL).error().code, Code::NotFound);
}

TEST(Pidfd, NobodyAndThreadsAreRefused) {
  const ProcRoot root = real_root();
  for (const std::int32_t pid : {0, -1, 2147483647}) {
    EXPECT_EQ(open_pidfd(root, {pid, 1}).error().code, Code::NotFound) << pid;
  }
}

TEST(Pidfd, RecycledPidIsNotSignalled) {
  const ProcRoot root = real_root();
  Child first(sleep_for_ever);
  const pid_t pid = first.pid();
  const auto held = hold_process(root, pid);
  ASSERT_TRUE(held);
  const auto inode = pidfd_inode(held->pidfd.get());
  ::kill(pid, SIGKILL);
  first.reap();
  const pid_t second = fork_with_pid(pid);
  if (second < 0) GTEST_SKIP() << "may not choose pids here: " << std::strerror(errno);
  ASSERT_EQ(second, pid);
  EXPECT_TRUE(is_dead(held->pidfd.get()));
  EXPECT_EQ(send_signal(held->pidfd.get(), SIGKILL).error().code, Code::NotFound);
  const auto now = hold_process(root, pid);
  ASSERT_TRUE(now);
  EXPECT_FALSE(is_dead(now->pidfd.get())) << "the newcomer was not hit";
  if (now->info.ref != held->info.ref) {
    EXPECT_EQ(open_pidfd(root, held->info.ref).error().code, Code::NotFound);
  }
  if (inode) {
    EXPECT_NE(pidfd_inode(now->pidfd.get()), inode);
  }
  ::kill(second, SIGKILL);
  ::waitpid(second, nullptr, 0);
}

TEST(Peer, OfASocketIsHeld) {
  const ProcRoot root = real_root();
  const TempDir dir;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, dir.path("s").c_str(), sizeof address.sun_path - 1);
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  Child child([&] {
    const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 1;
    return sleep_for_ever();
  });
  const Fd accepted(::accept(listener.get(), nullptr, nullptr));
  ASSERT_TRUE(accepted);
  const auto peer = peer_of(root, accepted.get());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->pid, child.pid());
  EXPECT_EQ(peer->uid, ::geteuid());
  EXPECT_FALSE(peer->anonymous);
  EXPECT_EQ(peer->process, root.read(child.pid())->ref);
  EXPECT_FALSE(is_dead(peer->pidfd.get()));
  EXPECT_EQ(peer->exact, identity_report(root).peer_pidfd);
  ::kill(child.pid(), SIGKILL);
  child.reap();
  EXPECT_TRUE(is_dead(peer->pidfd.get()));
  const auto gone = peer_of(root, accepted.get());
  ASSERT_TRUE(gone);
  EXPECT_FALSE(gone->process) << "whoever has the pid now did not connect";
}

TEST(Peer, OfNoSocketIsAnError) { EXPECT_FALSE(peer_of(real_root(), 0)); }

TEST(Identity, ReportAgreesWithTheKernel) {
  const ProcRoot root = real_root();
  const auto report = identity_report(root);
  EXPECT_EQ(report.boot_id, *root.boot_id());
  EXPECT_NE(report.text.find(report.kernel), std::string::npos);
  const auto self = hold_process(root, ::getpid());
  EXPECT_EQ(report.pidfd, self.has_value());
  if (self) {
    EXPECT_EQ(report.unique_inode, pidfd_inode(self->pidfd.get()).has_value());
  }
  EXPECT_FALSE(IdentityReport{}.may_signal());
}

}  // namespace
}  // namespace sublet::proc
