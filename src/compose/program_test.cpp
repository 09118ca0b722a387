// SPDX-License-Identifier: Apache-2.0
#include "compose/program.h"

#include "proc/test_support.h"

#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <csignal>
#include <thread>

#include "compose/private_file.h"

namespace sublet::compose {
namespace {

namespace asio = boost::asio;

class ProgramTest : public ::testing::Test {
 protected:
  Result<Outcome> run(Command command) {
    Result<Outcome> result = unavailable("not run");
    asio::co_spawn(io_, programs_.run(std::move(command)), [&](const std::exception_ptr&, Result<Outcome> outcome) {
      result = std::move(outcome);
      io_.stop();
    });
    io_.run();
    io_.restart();
    return result;
  }
  Command shell(const std::string& script, Duration timeout = std::chrono::minutes(1)) {
    return {.program = "/bin/sh",
            .arguments = {"-c", script, "name"},
            .environment = {"PATH=/usr/bin:/bin", "A=b"},
            .directory = dir_.path(),
            .timeout = timeout,
            .most_output = 10000};
  }
  // Waits until the process that wrote its number into this file has ended: one that was killed runs a moment longer.
  void until_ended(const std::string& name) {
    while (!ended(name)) std::this_thread::yield();
  }
  bool ended(const std::string& name) {
    std::ifstream file(dir_.path(name));
    pid_t pid = 0;
    file >> pid;
    EXPECT_GT(pid, 0);
    std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(status)), {});
    return text.empty() || text.find(") Z ") != std::string::npos;
  }

  proc::TempDir dir_;
  asio::io_context io_;
  Programs programs_{io_};
};

TEST_F(ProgramTest, OutputOfAProgramThatEndsWhileTheLoopIsBusyIsComplete) {
  Command command = shell("yes | head -c 40000");
  command.most_output = 100000;
  asio::post(io_, [this] {
    asio::post(io_, [] {
      siginfo_t end{};
      ::waitid(P_ALL, 0, &end, WEXITED | WNOWAIT);
    });
  });
  const auto outcome = run(std::move(command));
  ASSERT_TRUE(outcome) << outcome.error().detail;
  EXPECT_EQ(outcome->output.size(), 40000U);
}

// A thread executes another program, so that the first thread of the process ends.
TEST_F(ProgramTest, AProgramThatAThreadReplacesHasNotEnded) {
  const std::string thread =
      "threading.Thread(target=os.execv, args=('/bin/sh', ['sh', '-c', 'sleep 0.1; echo late']))";
  for (int round = 0; round < 5; ++round) {
    const auto outcome = run(shell("exec python3 -c \"import os, threading; " + thread + ".start()\""));
    ASSERT_TRUE(outcome) << outcome.error().detail;
    EXPECT_TRUE(outcome->succeeded()) << outcome->text();
    EXPECT_EQ(outcome->output, "late\n");
  }
}

TEST_F(ProgramTest, OutputEnvironmentDirectoryAndInput) {
  const auto outcome =
      run(shell("env | sort; pwd; cat; echo problem >&2; ps -o pgid= -o sid= -p $$ | xargs; echo $$ $$"));
  ASSERT_TRUE(outcome) << outcome.error().detail;
  EXPECT_TRUE(outcome->succeeded());
  const std::string start = "A=b\nPATH=/usr/bin:/bin\nPWD=" + dir_.path() + "\n" + dir_.path() + "\n";
  ASSERT_TRUE(outcome->output.starts_with(start)) << outcome->output;
  const std::string rest = outcome->output.substr(start.size());
  const auto half = rest.size() / 2;
  EXPECT_EQ(rest.substr(0, half), rest.substr(half)) << "a process group and a session of its own: " << rest;
  EXPECT_EQ(outcome->last_lines, "problem");
}

TEST_F(ProgramTest, AFailureHasTheLastLines) {
  const auto outcome =
      run(shell("for i in $(seq 100); do echo line $i >&2; done; printf 'bad \\033[31mred\\n' >&2; exit 3"));
  ASSERT_TRUE(outcome);
  EXPECT_FALSE(outcome->succeeded());
  EXPECT_EQ(outcome->text(), "exit status 3");
  EXPECT_TRUE(outcome->last_lines.starts_with("line 90\nline 91\n")) << outcome->last_lines;
  EXPECT_TRUE(outcome->last_lines.ends_with("line 100\nbad \\x1b[31mred")) << outcome->last_lines;
  EXPECT_EQ(run(shell("kill -9 $$"))->text(), "it was ended by SIGKILL");
}

TEST_F(ProgramTest, AProgramThatDoesNotExistCannotBeStarted) {
  Command command = shell("");
  command.program = "/nowhere/docker";
  const auto outcome = run(std::move(command));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().detail, "cannot start /nowhere/docker: No such file or directory");
}

TEST_F(ProgramTest, AHangingProgramIsEndedWithItsChildren) {
  const auto outcome =
      run(shell("trap '' TERM; sh -c 'echo $$ > child; sleep 1000' & echo $$ > parent; wait; sleep 1000",
                std::chrono::seconds(5)));
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->timed_out);
  EXPECT_EQ(outcome->text(), "it did not end in time and was ended");
  until_ended("parent");
  until_ended("child");
}

TEST_F(ProgramTest, AProgramThatWritesWithoutEndIsEnded) {
  const auto outcome = run(shell("yes"));
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->flooded);
  EXPECT_EQ(outcome->output.size(), 10000u);
}

TEST_F(ProgramTest, AProcessThatKeepsTheOutputOpenDoesNotDelayTheEnd) {
  const auto outcome = run(shell("echo first; setsid sleep 1000 & echo $! > left"));
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->succeeded());
  EXPECT_EQ(outcome->output, "first\n");
  std::ifstream file(dir_.path("left"));
  pid_t left = 0;
  file >> left;
  ::kill(left, SIGKILL);
}

TEST_F(ProgramTest, EndAllEndsWhatRuns) {
  asio::steady_timer timer(io_);
  std::function<void()> look = [&] {
    if (std::filesystem::exists(dir_.path("begun"))) return programs_.end_all();
    timer.expires_after(std::chrono::milliseconds(5));
    timer.async_wait([&](const boost::system::error_code&) { look(); });
  };
  look();
  const auto outcome = run(shell("touch begun; sleep 1000"));
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->stopped);
  EXPECT_TRUE(programs_.empty());
}

TEST_F(ProgramTest, AnInheritedLockIsHeldWhileTheProgramRuns) {
  const std::string path = dir_.path("lock");
  const Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  Command command = shell("flock -u 3 && echo open; ls /proc/self/fd | wc -l");
  command.inherited = lock.get();
  const auto outcome = run(std::move(command));
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->output.starts_with("open\n")) << outcome->output << outcome->last_lines;
}

TEST_F(ProgramTest, APrivateFileIsReplacedAtOnceAndKeptIfTheDiskIsFull) {
  const std::string path = dir_.path("resolved.yaml");
  ASSERT_TRUE(write_private_file(path, "old"));
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{}, small{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  small = before;
  small.rlim_cur = 100;
  ::setrlimit(RLIMIT_FSIZE, &small);
  const auto full = write_private_file(path, std::string(1000, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().detail, "cannot write " + path + ": File too large");
  EXPECT_EQ(*read_private_file(path, 100), "old");
  EXPECT_EQ(read_private_file(path, 2).error().code, Code::BadRequest);
  EXPECT_EQ(read_private_file(dir_.path("none"), 2).error().code, Code::NotFound);
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  struct stat entry {};
  ASSERT_EQ(::stat(path.c_str(), &entry), 0);
  EXPECT_EQ(entry.st_mode & 07777, 0600u);
}

}  // namespace
}  // namespace sublet::compose
