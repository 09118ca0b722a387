// SPDX-License-Identifier: Apache-2.0
// Tests the real sublet-gpu through a socket.
#include "gpu/probe.h"

#include "base/fd.h"
#include "gpu/probe_client.h"
#include "gpu/testing/fake_env.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <filesystem>

namespace sublet::gpu {
namespace {

constexpr const char* program = TEST_PROGRAM;

// A started `sublet-gpu probe`. Leaves descriptors open on purpose, as a careless parent would.
class Probe {
 public:
  explicit Probe(const std::string& nvml, bool nonblocking = false) {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    socket_ = Fd(pair[0]);
    ::fcntl(pair[0], F_SETFD, FD_CLOEXEC);
    if (nonblocking) ::fcntl(pair[1], F_SETFL, O_NONBLOCK);
    pid_ = ::fork();
    if (pid_ == 0) {
      const std::string fd = std::to_string(pair[1]);
      ::execl(program, program, "probe", "--fd", fd.c_str(), "--nvml", nvml.c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    ::close(pair[1]);
  }
  ~Probe() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  pid_t pid() const { return pid_; }
  Fd& socket() { return socket_; }
  void send(std::string_view text) const {
    EXPECT_EQ(::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }

  // Returns the next line, or nothing at the end of the stream.
  std::optional<std::string> line() {
    for (;;) {
      if (auto whole = lines_.next()) return whole;
      char buffer[65536];
      const ssize_t got = ::recv(socket_.get(), buffer, sizeof buffer, 0);
      if (got <= 0 || !lines_.feed({buffer, static_cast<std::size_t>(got)})) return std::nullopt;
    }
  }
  Result<SnapshotReply> ask(std::uint64_t id) {
    send(encode_snapshot_command(id));
    const auto answer = line();
    return answer ? decode_snapshot(*answer) : Result<SnapshotReply>(unavailable("no answer"));
  }
  int wait_for_exit() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  Fd socket_;
  LineSplitter lines_;
  pid_t pid_ = -1;
};

// Runs a program to its end and drops its output. Returns its exit status, -1 if a signal ended it.
int run_program(const char* path, std::vector<std::string> arguments) {
  std::vector<char*> words{const_cast<char*>(path)};
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  ::posix_spawn_file_actions_init(&quiet);
  for (const int fd : {1, 2}) ::posix_spawn_file_actions_addopen(&quiet, fd, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  int status = -1;
  if (::posix_spawn(&pid, path, &quiet, nullptr, words.data(), environ) == 0) ::waitpid(pid, &status, 0);
  ::posix_spawn_file_actions_destroy(&quiet);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int run(std::vector<std::string> arguments) { return run_program(program, std::move(arguments)); }

TEST(Probe, AnswersInOrderUntilTheSocketCloses) {
  const FakeNvml fake(fmt::format("compute={}:100", ::getpid()));
  Probe probe(fake_library("full"));
  const auto first = probe.ask(1);
  ASSERT_TRUE(first) << first.error().detail;
  EXPECT_EQ(first->id, 1u);
  ASSERT_EQ(first->snapshot.devices.size(), 1u);
  EXPECT_EQ(first->snapshot.devices[0].processes.at(0).process.pid, ::getpid());
  EXPECT_NE(first->snapshot.devices[0].processes.at(0).process.start_ticks, 0u);
  probe.send("snapshot 2\nsnapshot 3\nsnap");
  probe.send("shot 4\n");
  for (const std::uint64_t id : {2u, 3u, 4u}) EXPECT_EQ(decode_snapshot(probe.line().value())->id, id);
  probe.socket().reset();
  const int status = probe.wait_for_exit();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Probe, AMissingLibraryIsAnAnswerNotAnExit) {
  Probe probe("/nowhere/libnvidia-ml.so.1");
  for (const std::uint64_t id : {1u, 2u}) {
    const auto reply = probe.ask(id);
    ASSERT_TRUE(reply) << reply.error().detail;
    EXPECT_NE(reply->snapshot.problem.find("/nowhere/"), std::string::npos);
  }
}

TEST(Probe, NonBlockingSocketIsWaitedFor) {
  const FakeNvml fake("devices=1");
  Probe probe(fake_library("full"), /*nonblocking=*/true);
  // Requests more answers than the socket can hold before it reads one.
  std::string commands;
  for (int i = 0; i < 2000; ++i) commands += encode_snapshot_command(static_cast<std::uint64_t>(i));
  probe.send(commands);
  for (std::uint64_t i = 0; i < 2000; ++i) ASSERT_EQ(decode_snapshot(probe.line().value())->id, i);
}

TEST(Probe, WhatIsNoCommandEndsIt) {
  for (const std::string& text : {std::string("hello\n"), std::string(1000, 'x')}) {
    Probe probe("/nowhere/x.so");
    probe.send(text);
    EXPECT_EQ(probe.line(), std::nullopt);
    EXPECT_EQ(WEXITSTATUS(probe.wait_for_exit()), 1);
  }
}

TEST(Probe, InheritsNothingAndHandsOnNothing) {
  const int leaked = ::open("/dev/null", O_RDONLY);  // not close-on-exec
  ASSERT_GE(leaked, 0);
  Probe probe("/nowhere/x.so");
  ::close(leaked);
  ASSERT_TRUE(probe.ask(1));
  int beyond = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", probe.pid()))) {
    const int fd = std::stoi(entry.path().filename().string());
    if (fd < 3) continue;
    ++beyond;
    std::FILE* info = std::fopen(fmt::format("/proc/{}/fdinfo/{}", probe.pid(), fd).c_str(), "r");
    ASSERT_NE(info, nullptr);
    unsigned flags = 0;
    EXPECT_EQ(std::fscanf(info, "pos:%*d flags:%o", &flags), 1);
    std::fclose(info);
    EXPECT_NE(flags & O_CLOEXEC, 0u);
  }
  EXPECT_EQ(beyond, 1) << "the socket alone";
}

TEST(Probe, TerminalSignalsAreNotForIt) {
  Probe probe("/nowhere/x.so");
  ASSERT_TRUE(probe.ask(1));
  ::kill(probe.pid(), SIGINT);
  ::kill(probe.pid(), SIGHUP);
  EXPECT_TRUE(probe.ask(2));
}

TEST(Probe, EndsAfterItsParentAlthoughTheDriverHangs) {
  const FakeNvml fake("fail.nvmlDeviceGetMemoryInfo_v2=hang");
  Probe probe(fake_library("full"));
  probe.send("snapshot 1\n");
  probe.socket().reset();  // the helper sleeps in the driver's call, or is about to
  const int status = probe.wait_for_exit();
  EXPECT_TRUE(WIFEXITED(status)) << "ended by itself, not by a signal: " << status;
}

TEST(Program, SaysWhatItIsAndRefusesTheRest) {
  EXPECT_EQ(run({"--version"}), 0);
  EXPECT_EQ(run({"--help"}), 0);
  const std::vector<std::vector<std::string>> wrong{
      {},
      {"nonsense"},
      {"probe"},
      {"probe", "--fd"},
      {"probe", "--fd", "x"},
      {"probe", "--fd", "-1"},
      {"snapshot", "--fd", "3"},
      {"snapshot", "more"},
      {"snapshot", "--nvml", "relative.so"},
      {"snapshot", "--nvml"},
      {"--unknown"},
  };
  for (const auto& arguments : wrong) EXPECT_EQ(run(arguments), 2) << fmt::format("{}", fmt::join(arguments, " "));
  EXPECT_EQ(run({"probe", "--fd", "99"}), 1) << "no such descriptor";
}

TEST(Program, SnapshotExitsByWhetherThereWasOne) {
  const FakeNvml fake("devices=1");
  EXPECT_EQ(run({"snapshot", "--nvml", fake_library("full")}), 0);
  EXPECT_EQ(run({"snapshot", "--nvml", "/nowhere/x.so"}), 1);
}

// Tests on the simulated driver, which its own tool controls.
class SimulatedDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(TEST_SIMGPU) || !std::filesystem::exists(TEST_CTL)) {
      GTEST_SKIP() << "the simulated driver is not built: " << TEST_SIMGPU;
    }
    std::string pattern = (std::filesystem::temp_directory_path() / "sublet-gpu-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    ::setenv("SIMGPU_DIR", (dir_ + "/cards").c_str(), 1);
    ASSERT_TRUE(ctl({"create", "2x4GiB"}));
  }
  void TearDown() override {
    ::unsetenv("SIMGPU_DIR");
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }
  static bool ctl(std::vector<std::string> words) { return run_program(TEST_CTL, std::move(words)) == 0; }
  std::string dir_;
};

TEST_F(SimulatedDriver, IsReadThroughTheWholeWay) {
  Probe probe(TEST_SIMGPU);
  const auto reply = probe.ask(5);
  ASSERT_TRUE(reply) << reply.error().detail;
  const GpuSnapshot snapshot = judge(reply->snapshot);
  EXPECT_EQ(snapshot.problem, "");
  ASSERT_EQ(snapshot.devices.size(), 2u);
  for (const GpuDevice& device : snapshot.devices) {
    EXPECT_EQ(device.problem, "");
    EXPECT_TRUE(device.simulated) << device.name;
    EXPECT_TRUE(device.uuid.starts_with("GPU-")) << device.uuid;
    EXPECT_EQ(device.total, 4 * GiB);
    EXPECT_GT(device.driver_reserved.count, 0);
    EXPECT_TRUE(device.processes.empty());
  }
  EXPECT_NE(snapshot.devices[0].uuid, snapshot.devices[1].uuid);
}

TEST_F(SimulatedDriver, ErrorsAndHangsOfTheDriverAreSeen) {
  Probe probe(TEST_SIMGPU);
  ASSERT_TRUE(probe.ask(1));
  ASSERT_TRUE(ctl({"fault", "nvml-error", "--code", "999"}));
  const auto failed = probe.ask(2);
  ASSERT_TRUE(failed);
  bool told = !failed->snapshot.problem.empty();
  for (const GpuDevice& device : failed->snapshot.devices) told = told || !device.problem.empty();
  EXPECT_TRUE(told);
  ASSERT_TRUE(ctl({"clear"}));
  const auto mended = probe.ask(3);
  ASSERT_TRUE(mended);
  EXPECT_EQ(mended->snapshot.problem, "");
  ASSERT_TRUE(ctl({"fault", "nvml-hang"}));
  probe.send(encode_snapshot_command(4));
  pollfd entry{probe.socket().get(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 200), 0) << "a hang in the driver is a silence here";
  ASSERT_TRUE(ctl({"clear"}));
  EXPECT_EQ(decode_snapshot(probe.line().value())->id, 4u);
}

}  // namespace
}  // namespace sublet::gpu
