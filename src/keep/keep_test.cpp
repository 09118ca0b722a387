// SPDX-License-Identifier: Apache-2.0
// Tests the parts of the keeper with real processes. keeper_test.cpp tests the whole keeper.
#include "keep/child.h"
#include "keep/environment.h"
#include "keep/events.h"
#include "keep/interpreter.h"
#include "keep/preload.h"
#include "keep/signals.h"
#include "keep/tree.h"

#include "client/fake_server.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

namespace sublet::keep {
namespace {

using namespace std::chrono_literals;
using test::ScratchDir;

std::vector<std::string> current_environment() {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) out.emplace_back(*entry);
  return out;
}

int wait_status(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

std::string read_all(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct ChildTest : ::testing::Test {
  ScratchDir dir;
  Signals signals;
  Launch launch{{"sh", "-c", "exit 7"}, current_environment()};
  Result<Child> fork() { return Child::fork(launch, signals, Grouping::own); }
};

TEST_F(ChildTest, IsHeldUntilItIsLetGo) {
  const std::string mark = dir.path() + "/ran";
  launch.arguments = {"sh", "-c", "touch '" + mark + "'; exit 7"};
  auto child = fork();
  ASSERT_TRUE(child);
  EXPECT_EQ(::getpgid(child->pid()), child->pid());
  EXPECT_EQ(::waitpid(child->pid(), nullptr, WNOHANG), 0);
  EXPECT_FALSE(std::filesystem::exists(mark));
  child->let_go();
  EXPECT_FALSE(child->exec_result());
  EXPECT_EQ(WEXITSTATUS(wait_status(child->pid())), 7);
  EXPECT_TRUE(std::filesystem::exists(mark));
}

TEST_F(ChildTest, EndsWithoutRunningWhenAbandoned) {
  const std::string mark = dir.path() + "/ran";
  launch.arguments = {"touch", mark};
  auto child = fork();
  ASSERT_TRUE(child);
  child->abandon();
  EXPECT_EQ(WEXITSTATUS(wait_status(child->pid())), 125);
  EXPECT_FALSE(std::filesystem::exists(mark));
}

TEST_F(ChildTest, ReportsWhyItCannotExecute) {
  const std::string plain = dir.path() + "/plain", bad = dir.path() + "/bad";
  std::ofstream(plain) << "x";
  std::ofstream(bad) << "#!/no/such/interpreter\n";
  ASSERT_EQ(::chmod(bad.c_str(), 0755), 0);
  const std::pair<std::string, int> cases[] = {
      {"no-such-program-here", 127}, {"/no/such/file", 127}, {plain, 126}, {dir.path(), 126}, {bad, 127}};
  for (const auto& [program, status] : cases) {
    launch.arguments = {program};
    auto child = fork();
    ASSERT_TRUE(child);
    child->let_go();
    const auto failure = child->exec_result();
    ASSERT_TRUE(failure) << program;
    EXPECT_EQ(failure->status(), status) << program;
    EXPECT_NE(failure->detail(program).find(program), std::string::npos);
    EXPECT_EQ(WEXITSTATUS(wait_status(child->pid())), status);
  }
}

TEST_F(ChildTest, NamesTheInterpreterThatFails) {
  const auto failure = [&](const std::string& text) {
    const std::string script = dir.path() + "/script";
    std::ofstream(script) << text;
    ::chmod(script.c_str(), 0755);
    return find_program(script);
  };
  const auto missing = failure("#! /no/such/interpreter -x\n");
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->status(), 127);
  EXPECT_NE(missing->detail("script").find("'/no/such/interpreter'"), std::string::npos) << missing->detail("script");
  EXPECT_EQ(failure("#!/etc/passwd\n")->status(), 126) << "not executable";
  for (const char* text : {"#!/bin/sh\r\nexit 0\r\n", "#!/usr/bin/env sh\r\n", "#!/bin/sh\r"}) {
    const auto returns = failure(text);
    ASSERT_TRUE(returns) << text;
    EXPECT_EQ(returns->status(), 127);
    EXPECT_NE(returns->detail("script").find("CRLF"), std::string::npos) << returns->detail("script");
    EXPECT_NE(returns->hint.find("sed"), std::string::npos);
  }
  const std::pair<const char*, int> by_env[] = {{"#!/usr/bin/env no-such-program\n", 127},
                                                {"#! /usr/bin/env \t no-such-program \n", 127},
                                                {"#!/usr/bin/env /no-such-program", 127},
                                                {"#!/usr/bin/env /etc\n", 126}};
  for (const auto& [text, status] : by_env) {
    const auto unknown = failure(text);
    ASSERT_TRUE(unknown) << text;
    EXPECT_EQ(unknown->status(), status) << text;
    const std::string detail = unknown->detail("script");
    EXPECT_NE(detail.find(status == 127 ? "no-such-program'" : "'/etc'"), std::string::npos) << detail;
  }
  for (const char* text : {"#!/bin/sh\n", "#!/usr/bin/env sh\n", "#!/usr/bin/env  sh \n", "#!/usr/bin/env\n",
                           "#!/usr/bin/env -S no-such-program -x\n", "#!/usr/bin/env A=no-such-program\n", "#!\n",
                           "exit 0\n", ""})
    EXPECT_FALSE(failure(text)) << text;
  const std::string loop = dir.path() + "/script";
  EXPECT_FALSE(failure("#!/usr/bin/env " + loop + "\n")) << "a script that names itself ends the search";
  std::string binary = read_all("/bin/sh");
  const std::size_t linker = binary.find("/lib64/ld-linux");
  if (linker == std::string::npos) return;  // linked statically, or for another machine
  EXPECT_FALSE(failure(binary));
  binary[linker + 1] = 'x';
  EXPECT_NE(failure(binary)->detail("sh").find("dynamic linker '/xib64/ld-linux"), std::string::npos);
}

TEST_F(ChildTest, IsLookedForAsExecDoes) {
  EXPECT_FALSE(find_program("sh"));
  EXPECT_FALSE(find_program("/bin/sh"));
  EXPECT_EQ(find_program("no-such-program-here")->status(), 127);
  EXPECT_EQ(find_program("")->status(), 127);
  EXPECT_EQ(find_program(dir.path())->status(), 126);
}

TEST_F(ChildTest, GetsNeitherOurDescriptorsNorOurSignals) {
  const std::string out = dir.path() + "/status";
  launch.arguments = {"sh", "-c",
                      "cat /proc/self/status > '" + out + "'; ls /proc/self/fd | tr '\\n' ' ' >> '" + out + "'"};
  // The program must see exactly the descriptors that this process inherited from its shell.
  const auto count = [&] {
    const std::string text = read_all(out);
    const auto field = [&](const char* name) {
      const auto at = text.find(name);
      return text.substr(at, text.find('\n', at) - at);
    };
    return std::pair(field("SigBlk:") + field("SigIgn:"), text.substr(text.rfind('\n') + 1));
  };
  Events events;  // its descriptors and those of `signals` must not be visible
  auto child = fork();
  ASSERT_TRUE(child);
  child->let_go();
  wait_status(child->pid());
  const auto under_us = count();
  signals.restore();
  const pid_t plain = ::fork();
  if (plain == 0) {
    ::execlp("sh", "sh", "-c", launch.arguments[2].c_str(), nullptr);
    ::_exit(127);
  }
  wait_status(plain);
  EXPECT_EQ(under_us, count());
}

TEST_F(ChildTest, GetsTheLimitsOfTheCaller) {
  const std::string out = dir.path() + "/limits";
  launch.arguments = {"sh", "-c", "cat /proc/self/limits > '" + out + "'"};
  const rlimit low{4096, 65536};
  const pid_t caller = ::fork();  // lowered hard limits cannot be raised again
  if (caller == 0) {
    ::setrlimit(RLIMIT_FSIZE, &low);
    const std::string ours = read_all("/proc/self/limits");
    launch.limits = raise_limits();
    rlimit raised{};
    if (::getrlimit(RLIMIT_FSIZE, &raised) != 0 || raised.rlim_cur < low.rlim_max) ::_exit(1);
    auto child = fork();
    if (!child) ::_exit(2);
    child->let_go();
    wait_status(child->pid());
    ::_exit(read_all(out) == ours ? 0 : 3);
  }
  EXPECT_EQ(WEXITSTATUS(wait_status(caller)), 0);
}

TEST(Preload, LeavesTheLibrariesOfTheCallerInFront) {
  EXPECT_EQ(add_preload("", "/lib/ours.so"), "/lib/ours.so");
  EXPECT_EQ(add_preload("/lib/theirs.so", "/lib/ours.so"), "/lib/theirs.so:/lib/ours.so");
  EXPECT_EQ(add_preload("a.so b.so", "/lib/ours.so"), "a.so b.so:/lib/ours.so");
  EXPECT_EQ(add_preload("a.so:/lib/ours.so b.so", "/lib/ours.so"), "a.so:/lib/ours.so b.so");
  EXPECT_EQ(add_preload("/lib/ours.so.1", "/lib/ours.so"), "/lib/ours.so.1:/lib/ours.so");
}

TEST(SignalsTest, LetWritesFailAtALimit) {
  const ScratchDir dir;
  const pid_t limited = ::fork();
  if (limited == 0) {
    Signals signals;
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_FSIZE, &none);
    ::raise(SIGXCPU);
    std::ofstream file(dir.path() + "/file");
    ::_exit(file << "x" << std::flush ? 1 : 0);
  }
  EXPECT_EQ(wait_status(limited), 0);
}

TEST(TreeTest, ReachesWhatIsBelowAndSparesWhatWasThereBefore) {
  const pid_t foreign = ::fork();
  if (foreign == 0) {
    ::pause();
    ::_exit(0);
  }
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  auto tree = Tree::open();
  ASSERT_TRUE(tree);
  EXPECT_TRUE(tree->processes()->empty());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  // A child, its child in another session, and an orphan that came to us.
  const pid_t child = ::fork();
  if (child == 0) {
    if (::fork() == 0) {
      ::setsid();
      if (::fork() != 0) ::_exit(0);
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      ::pause();
    }
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char buffer[2];
  for (int got = 0; got < 2;) got += static_cast<int>(::read(ready[0], buffer, 1));
  const auto found = tree->processes();
  ASSERT_TRUE(found);
  std::set<std::int32_t> pids;
  for (const auto& process : *found) pids.insert(process.ref.pid);
  EXPECT_TRUE(pids.contains(child));
  EXPECT_FALSE(pids.contains(foreign));
  EXPECT_GE(pids.size(), 2u);
  for (auto sent = tree->signal(SIGKILL); sent && *sent > 0; sent = tree->signal(SIGKILL)) {
  }
  EXPECT_EQ(::waitpid(foreign, nullptr, WNOHANG), 0);
  EXPECT_EQ(WTERMSIG(wait_status(child)), SIGKILL);
  ::kill(foreign, SIGKILL);
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(SignalsTest, ReadsThemAndLeavesWhatWasIgnored) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGHUP, &ignore, &before);
  {
    Signals signals;
    ::kill(::getpid(), SIGHUP);
    ::kill(::getpid(), SIGUSR1);
    const auto signal = signals.next();
    ASSERT_TRUE(signal);
    EXPECT_EQ(signal->number, SIGUSR1);
    EXPECT_FALSE(signal->from_kernel);
    EXPECT_FALSE(signals.next());
  }
  ::sigaction(SIGHUP, &before, nullptr);
}

TEST(EventsTest, RunHandlersAndTimersAndCancel) {
  Events events;
  Timer timer(events);
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  int read_count = 0, fired = 0;
  events.watch(pipe_fds[0], [&] {
    char c;
    if (::read(pipe_fds[0], &c, 1) == 1) ++read_count;
  });
  EXPECT_TRUE(events.dispatch());
  ASSERT_EQ(::write(pipe_fds[1], "ab", 2), 2);
  EXPECT_TRUE(events.dispatch());
  EXPECT_TRUE(events.dispatch());
  EXPECT_EQ(read_count, 2);
  timer.set(1ms, [&] {
    ++fired;
    events.cancel();
  });
  const auto interrupt = events.interrupt();
  client::Client client(client::Endpoint{"/nowhere"});
  client.set_interrupt(interrupt);
  EXPECT_FALSE(client.pause(1h));
  EXPECT_EQ(fired, 1);
  events.resume();
  EXPECT_TRUE(events.dispatch());
  events.forget(pipe_fds[0]);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
}

TEST(Environment, HoldsTheLeaseAndWhatTheDaemonAsksFor) {
  client::Lease lease;
  lease.id = "lease-7";
  lease.vram = {42};
  lease.devices = {"GPU-a", "GPU-b"};
  const char* ours[] = {"PATH=/bin",
                        "CUDA_VISIBLE_DEVICES=3",
                        "LD_LIBRARY_PATH=/mine",
                        "SUBLET_LEASE=lease-1",
                        "SUBLET_LEASE_TOKEN_FILE=/secret",
                        nullptr};
  const nlohmann::json wanted{
      {"program_env", {{"LD_LIBRARY_PATH", "/sim"}, {"SIMGPU_DIR", "/cards"}, {"bad=name", "x"}, {"n", 1}}}};
  auto out = program_environment(ours, client::Endpoint{"/s.sock"}, lease, wanted);
  std::sort(out.begin(), out.end());
  const std::vector<std::string> expected{"CUDA_DEVICE_ORDER=PCI_BUS_ID",
                                          "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b",
                                          "LD_LIBRARY_PATH=/sim:/mine",
                                          "PATH=/bin",
                                          "SIMGPU_DIR=/cards",
                                          "SUBLET_HOST=unix:///s.sock",
                                          "SUBLET_LEASE=lease-7",
                                          "SUBLET_LEASE_BYTES=42"};
  EXPECT_EQ(out, expected);
  // A second call adds nothing.
  const char* again[] = {"LD_LIBRARY_PATH=/sim:/mine", nullptr};
  out = program_environment(again, client::Endpoint{"/s.sock"}, lease, wanted);
  EXPECT_NE(std::find(out.begin(), out.end(), "LD_LIBRARY_PATH=/sim:/mine"), out.end());
}

TEST(Environment, NamesTheDevicesInTheOrderOfTheCaller) {
  const nlohmann::json status{{"devices",
                               {{{"uuid", "GPU-aaaa"}, {"index", 0}},
                                {{"uuid", "GPU-bbbb"}, {"index", 1}},
                                {{"uuid", "GPU-cccc"}, {"index", 2}}}}};
  struct Row {
    std::vector<std::string> lease;
    const char* visible;
    const char* uuids;
    const char* indices;
  };
  const Row rows[] = {
      {{"GPU-aaaa", "GPU-bbbb"}, "", "GPU-aaaa,GPU-bbbb", "0,1"},
      {{"GPU-aaaa", "GPU-bbbb"}, "1,0", "GPU-bbbb,GPU-aaaa", "1,0"},
      {{"GPU-aaaa", "GPU-cccc"}, "GPU-c, GPU-bbbb,0", "GPU-cccc,GPU-aaaa", "2,0"},
      {{"GPU-aaaa", "GPU-bbbb"}, "gpu1,gpu2, gpu0", "GPU-bbbb,GPU-aaaa", "1,0"},
      {{"GPU-aaaa", "GPU-bbbb"}, "2", "GPU-aaaa,GPU-bbbb", "0,1"},
      {{"GPU-dddd"}, "3", "GPU-dddd", "GPU-dddd"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(visible_devices(row.lease, row.visible, false, status), row.uuids) << row.visible;
    EXPECT_EQ(visible_devices(row.lease, row.visible, true, status), row.indices) << row.visible;
  }
  client::Lease lease;
  lease.devices = {"GPU-aaaa", "GPU-bbbb"};
  const char* ours[] = {"CUDA_VISIBLE_DEVICES=1,0", "SUBLET_GPU_NAMES=index", nullptr};
  const auto out = program_environment(ours, client::Endpoint{"/s.sock"}, lease, status);
  EXPECT_NE(std::find(out.begin(), out.end(), "CUDA_VISIBLE_DEVICES=1,0"), out.end());
}

}  // namespace
}  // namespace sublet::keep
