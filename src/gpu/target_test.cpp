// SPDX-License-Identifier: Apache-2.0
#include "gpu/target.h"

#include "base/fd.h"
#include "proc/cgroup.h"
#include "proc/test_support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

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

TEST(Target, IsSeenEndingBeforeItHasEnded) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root for a process that stays so";
  const proc::Ending ending;
  const Target target({ending.pid(), 0});
  EXPECT_FALSE(target.gone());
  const TargetLook look = target.look();
  EXPECT_TRUE(look.there && look.ending);
  EXPECT_FALSE(Target({::getpid(), 0}).look().ending);
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

// A machine with both cgroup versions; the unified hierarchy is mounted in part.
struct Layout {
  Layout() {
    dir.write("self/mountinfo", "30 1 0:26 /part " + dir.path("unified") + " rw - cgroup2 none rw\n31 1 0:27 / " +
                                    dir.path("freezer") + " rw - cgroup none rw,freezer\n");
    dir.write("42/cgroup", "5:freezer:/jobs/one\n0::/part/session\n");
    root.emplace(std::move(*proc::ProcRoot::open(dir.path())));
  }
  void v2(const std::string& frozen) const {
    dir.write("unified/session/cgroup.events", "populated 1\nfrozen " + frozen + "\n");
  }
  void v1(const std::string& state) const { dir.write("freezer/jobs/one/freezer.state", state + "\n"); }

  proc::TempDir dir;
  std::optional<proc::ProcRoot> root;
};

TEST(Frozen, IsWhatEitherVersionSays) {
  const Layout layout;
  EXPECT_FALSE(is_frozen(*layout.root, 42)) << "neither says";
  layout.v2("0");
  layout.v1("THAWED");
  EXPECT_FALSE(is_frozen(*layout.root, 42));
  layout.v2("1");
  EXPECT_TRUE(is_frozen(*layout.root, 42));
  layout.v2("0");
  layout.v1("FROZEN");
  EXPECT_TRUE(is_frozen(*layout.root, 42));
  layout.v1("FREEZING");
  EXPECT_TRUE(is_frozen(*layout.root, 42));
  EXPECT_FALSE(is_frozen(*layout.root, 43)) << "there is no such process";
}

void write_file(const std::string& path, const std::string& text) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    ADD_FAILURE() << path;
}

// A group of that hierarchy for this test. None: it may not be made here.
class OwnGroup {
 public:
  explicit OwnGroup(const proc::CgroupMount* mount) {
    if (mount == nullptr) return;
    const std::string path = fmt::format("{}/sublet-test-{}", mount->path, ::getpid());
    if (::mkdir(path.c_str(), 0755) == 0) path_ = path;
  }
  ~OwnGroup() {
    if (!path_.empty() && ::rmdir(path_.c_str()) != 0) ADD_FAILURE() << path_ << " stays";
  }
  OwnGroup(const OwnGroup&) = delete;
  OwnGroup& operator=(const OwnGroup&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Frozen, IsSeenOfAProcessInVersionTwo) {
  const auto root = proc::ProcRoot::open();
  const auto hierarchies = proc::find_hierarchies(*root);
  ASSERT_TRUE(hierarchies);
  const OwnGroup group(hierarchies->v2());
  if (group.path().empty()) GTEST_SKIP() << "no group of the unified hierarchy can be made here";
  Sleeper sleeper;
  const Target target({sleeper.pid(), 0});
  write_file(group.path() + "/cgroup.procs", std::to_string(sleeper.pid()));
  EXPECT_FALSE(target.look().stopped);
  const std::string events = group.path() + "/cgroup.events";
  write_file(group.path() + "/cgroup.freeze", "1");
  while (text_of(events).find("frozen 1") == std::string::npos) std::this_thread::yield();
  EXPECT_TRUE(target.look().stopped);
  write_file(group.path() + "/cgroup.freeze", "0");
  while (text_of(events).find("frozen 0") == std::string::npos) std::this_thread::yield();
  EXPECT_FALSE(target.look().stopped);
  sleeper.end();
}

TEST(Frozen, IsSeenOfAProcessInVersionOne) {
  const auto root = proc::ProcRoot::open();
  const auto hierarchies = proc::find_hierarchies(*root);
  ASSERT_TRUE(hierarchies);
  const OwnGroup group(hierarchies->v1("freezer"));
  if (group.path().empty()) GTEST_SKIP() << "no group of the freezer can be made here";
  Sleeper sleeper;
  const Target target({sleeper.pid(), 0});
  write_file(group.path() + "/cgroup.procs", std::to_string(sleeper.pid()));
  EXPECT_FALSE(target.look().stopped);
  write_file(group.path() + "/freezer.state", "FROZEN");
  EXPECT_TRUE(target.look().stopped);
  write_file(group.path() + "/freezer.state", "THAWED");
  EXPECT_FALSE(target.look().stopped);
  sleeper.end();
}

}  // namespace
}  // namespace sublet::gpu
