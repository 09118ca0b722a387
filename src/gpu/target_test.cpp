// SPDX-License-Identifier: Apache-2.0
#include "gpu/target.h"

#include <gtest/gtest.h>

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

namespace sublet::gpu {
namespace {

// A process that does nothing.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
  }
  ~Sleeper() { end(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  pid_t pid() const { return pid_; }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) == pid_ && !WIFEXITED(status) && !WIFSIGNALED(status)) {
    }
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

TEST(Nccl, IsSeenByWhatAProcessMaps) {
  const std::string torch = "7f00-7f01 r-xp 0000 08:01 1    /opt/torch/lib/libtorch_cuda.so\n";
  const std::string library = "7f02-7f03 r-xp 0000 08:01 2    /usr/lib/libnccl.so.2.27.3\n";
  const std::string shared = "7f04-7f05 rw-s 0000 00:1a 3    /dev/shm/nccl-Xa81 (deleted)\n";
  EXPECT_FALSE(look_for_nccl(torch + library).links) << "PyTorch has it always";
  EXPECT_TRUE(look_for_nccl(library).links);
  EXPECT_FALSE(look_for_nccl(library).shares);
  EXPECT_TRUE(look_for_nccl(torch + library + shared).shares);
  EXPECT_FALSE(look_for_nccl("7f04-7f05 rw-s 0000 00:1a 3    /tmp/nccl-Xa81\n").shares);
  EXPECT_FALSE(look_for_nccl("7f-8f r--p 0 00:00 0\n7f-8f r--p 0 08:01 4 /libnccl-net.so").links);
  EXPECT_FALSE(look_for_nccl("").links);
}

TEST(Target, SaysWhatTheKernelSays) {
  const Target self({::getpid(), 0});
  EXPECT_FALSE(self.gone());
  EXPECT_GE(self.pidfd(), 0);
  const TargetLook look = self.look();
  EXPECT_TRUE(look.there && look.may_trace && look.same_user);
  EXPECT_FALSE(look.stopped);
  EXPECT_EQ(look.tracer, 0);
  EXPECT_GT(look.resident, MiB);
}

TEST(Target, IsGoneOnceItHasEnded) {
  Sleeper sleeper;
  const Target target({sleeper.pid(), 0});
  EXPECT_FALSE(target.gone());
  ::kill(sleeper.pid(), SIGKILL);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(sleeper.pid()), &info, WEXITED | WNOWAIT);
  EXPECT_TRUE(target.gone()) << "nobody has waited for it yet";
  sleeper.end();
  EXPECT_TRUE(target.gone());
  EXPECT_FALSE(target.look().there);
}

TEST(Target, IsAnotherWhenItStartedAtAnotherTime) {
  EXPECT_TRUE(Target({::getpid(), 1}).gone());
  EXPECT_TRUE(Target({4'194'303, 0}).gone());
}

TEST(Target, IsSeenStoppedAndTraced) {
  const Sleeper sleeper;
  const Target target({sleeper.pid(), 0});
  int status = 0;
  ::kill(sleeper.pid(), SIGSTOP);
  ASSERT_EQ(::waitpid(sleeper.pid(), &status, WUNTRACED), sleeper.pid());
  EXPECT_TRUE(target.look().stopped);
  ::kill(sleeper.pid(), SIGCONT);
  ASSERT_EQ(::waitpid(sleeper.pid(), &status, WCONTINUED), sleeper.pid());
  EXPECT_FALSE(target.look().stopped);
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, sleeper.pid(), nullptr, nullptr), 0);
  EXPECT_EQ(target.look().tracer, ::getpid());
}

}  // namespace
}  // namespace sublet::gpu
