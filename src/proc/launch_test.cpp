// SPDX-License-Identifier: Apache-2.0
#include "proc/launch.h"

#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace sublet::proc {
namespace {

// Runs a shell's command with standard output from `number`, and returns what it wrote.
std::string output_of(Launch launch, const std::string& command, int number = 1) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd from(ends[0]);
  Fd to(ends[1]);
  launch.program = "/bin/sh";
  launch.arguments = {"-c", command};
  launch.descriptors.push_back({number, to.get()});
  const auto pid = launch.start();
  EXPECT_TRUE(pid);
  to.reset();
  std::string text;
  char piece[256];
  for (ssize_t got; (got = ::read(from.get(), piece, sizeof piece)) > 0;) text.append(piece, got);
  EXPECT_EQ(::waitpid(*pid, nullptr, 0), *pid);
  return text;
}

TEST(Launch, GivesDescriptorsByNumberAndKeepsOthers) {
  const Fd open(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  Launch launch{.descriptors = {{0, Launch::nothing}, {4, open.get()}}};
  EXPECT_EQ(output_of(launch, "readlink /proc/self/fd/0 /proc/self/fd/4 >&3", 3), "/dev/null\n/dev/zero\n");
  EXPECT_EQ(output_of({}, "test -e /proc/self/fd/" + std::to_string(open.get()) + " || echo closed"), "closed\n");
}

TEST(Launch, ADescriptorMayKeepItsNumber) {
  const Fd same(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 5));
  Launch launch{.descriptors = {{same.get(), same.get()}}};
  EXPECT_EQ(output_of(launch, "test -e /proc/self/fd/" + std::to_string(same.get()) + " && echo open"), "open\n");
}

TEST(Launch, EnvironmentAndDirectoryAreOursUnlessGiven) {
  ::setenv("LAUNCH_TEST", "ours", 1);
  EXPECT_EQ(output_of({}, "echo $LAUNCH_TEST"), "ours\n");
  EXPECT_EQ(output_of({.environment = {{"LAUNCH_TEST=given"}}, .directory = "/"}, "echo $LAUNCH_TEST; pwd"),
            "given\n/\n");
  EXPECT_EQ(output_of({.environment = std::vector<std::string>()}, "echo [$LAUNCH_TEST]"), "[]\n");
}

TEST(Launch, ANewSessionIsLedByTheProgram) {
  const std::string ids = "cut -d' ' -f1,6 /proc/$$/stat | tr ' ' '\\n' | uniq | wc -l";
  EXPECT_EQ(output_of({.new_session = true}, ids), "1\n");
  EXPECT_EQ(output_of({}, ids), "2\n");
}

TEST(Launch, SignalsAreAsAtFirst) {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t blocked, before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  EXPECT_EQ(output_of({}, "kill -PIPE $$; echo alive"), "");
  EXPECT_EQ(output_of({}, "kill -USR1 $$; echo alive"), "");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
}

TEST(Launch, AMissingProgramIsNamed) {
  const auto pid = Launch{.program = "/no/such"}.start();
  ASSERT_FALSE(pid);
  EXPECT_NE(pid.error().detail.find("cannot start /no/such"), std::string::npos) << pid.error().detail;
}

}  // namespace
}  // namespace sublet::proc
