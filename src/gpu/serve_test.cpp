// SPDX-License-Identifier: Apache-2.0
// The peer of a helper goes away during a driver call. A child process makes the call.
#include "gpu/serve.h"

#include <gtest/gtest.h>

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace sublet::gpu {
namespace {

std::string line_of(const std::filesystem::path& file, const std::string& name) {
  std::ifstream status(file);
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return line.substr(line.find_first_not_of(" \t", name.size()));
  return {};
}

class Watched : public ::testing::Test {
 protected:
  void SetUp() override {
    target_ = ::fork();  // forked before the socket exists, so that it does not keep the socket open
    if (target_ == 0) idle();
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ours_ = Fd(pair[0]);
    theirs_ = Fd(pair[1]);
  }
  void TearDown() override {
    end(target_);
    end(caller_);
  }
  [[noreturn]] static void idle() {
    for (;;) ::pause();
  }
  static void end(pid_t& pid) {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }
  // Makes a call that lasts as long as the test wants. Returns when the call has begun. The caller then reports, and
  // ends by itself.
  void call(bool with_target) {
    caller_ = ::fork();
    if (caller_ != 0) {
      theirs_.reset();
      char byte = 0;
      ASSERT_EQ(::recv(ours_.get(), &byte, 1, 0), 1);
      return;
    }
    ours_.reset();
    const int pidfd = with_target ? static_cast<int>(::syscall(SYS_pidfd_open, target_, 0)) : -1;
    {
      const Watch watch(theirs_.get(), pidfd);
      ::send(theirs_.get(), "c", 1, MSG_NOSIGNAL);
      char byte = 0;
      // Any signal interrupts pause(), however it is handled. A driver's ioctl may behave the same way.
      if (::recv(theirs_.get(), &byte, 1, 0) != 1) ::pause();
      if (timer_runs()) ::_exit(9);
    }
    ::send(theirs_.get(), "r", 1, MSG_NOSIGNAL);
    ::_exit(7);
  }
  int status() {
    int status = 0;
    ::waitpid(std::exchange(caller_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  // A timer of setitimer() or alarm(), which only its own process sees.
  static bool timer_runs() {
    for (const auto which : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
      itimerval timer{};
      if (::getitimer(which, &timer) != 0 || timer.it_value.tv_sec != 0 || timer.it_value.tv_usec != 0) return true;
    }
    return false;
  }
  std::filesystem::path proc() const { return "/proc/" + std::to_string(caller_); }
  // Returns the /proc directory of the watching thread.
  std::filesystem::path looker() const {
    for (const auto& task : std::filesystem::directory_iterator(proc() / "task"))
      if (task.path().filename() != std::to_string(caller_)) return task.path();
    return {};
  }
  // Whether the caller still runs after the watching thread has seen the event and waits again.
  bool outlives(const std::function<void()>& event) {
    const std::filesystem::path status = looker() / "status";
    const auto waits = [&] { return line_of(status, "State:").starts_with("S"); };
    const auto times = [&] { return line_of(status, "voluntary_ctxt_switches:"); };
    while (runs() && !waits()) std::this_thread::yield();
    const std::string before = times();
    event();
    while (runs() && (times() == before || !waits())) std::this_thread::yield();
    return runs();
  }
  // Does not reap the child.
  bool runs() const {
    siginfo_t about{};
    return ::waitid(P_PID, static_cast<id_t>(caller_), &about, WEXITED | WNOHANG | WNOWAIT) == 0 && about.si_pid == 0;
  }

  Fd ours_, theirs_;
  pid_t target_ = -1, caller_ = -1;
};

TEST_F(Watched, EndsItsProcessAtThePeersEnd) {
  call(false);
  EXPECT_TRUE(runs());
  ours_.reset();
  EXPECT_EQ(status(), 1);
}

TEST_F(Watched, WaitsForTheProcessThatIsChangedToEndToo) {
  call(true);
  EXPECT_TRUE(outlives([this] { ours_.reset(); }));
  end(target_);
  EXPECT_EQ(status(), 1);
}

TEST_F(Watched, WhoIsWaitedForIsNotLeftWhenTheProcessEndsFirst) {
  call(true);
  EXPECT_TRUE(outlives([this] { end(target_); }));
  ours_.reset();
  EXPECT_EQ(status(), 1);
}

TEST_F(Watched, ACallThatReturnsIsAnswered) {
  call(true);
  ASSERT_EQ(::send(ours_.get(), "x", 1, MSG_NOSIGNAL), 1);
  char byte = 0;
  ASSERT_EQ(::recv(ours_.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'r');
  EXPECT_EQ(status(), 7);
}

// During a long call no timer runs, no signal has a handler, and the watching thread receives no signal.
TEST_F(Watched, NothingInterruptsACall) {
  call(true);
  int others = 0;
  for (const auto& task : std::filesystem::directory_iterator(proc() / "task")) {
    if (task.path().filename() == std::to_string(caller_)) continue;
    ++others;
    std::uint64_t blocked = 0;
    const std::string hex = line_of(task.path() / "status", "SigBlk:");
    std::from_chars(hex.data(), hex.data() + hex.size(), blocked, 16);
    for (const int signal : {SIGALRM, SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGUSR1})
      EXPECT_NE(blocked & (std::uint64_t{1} << (signal - 1)), 0U) << signal;
  }
  EXPECT_GE(others, 1);
  std::uint64_t caught = 0;
  const std::string hex = line_of(proc() / "status", "SigCgt:");
  std::from_chars(hex.data(), hex.data() + hex.size(), caught, 16);
  EXPECT_EQ(caught & (std::uint64_t{1} << (SIGALRM - 1)), 0U);
  std::ifstream timers(proc() / "timers");
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(timers)), {}), "");
  ASSERT_EQ(::send(ours_.get(), "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(status(), 7) << "9: a timer runs";
}

}  // namespace
}  // namespace sublet::gpu
