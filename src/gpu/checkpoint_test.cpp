// SPDX-License-Identifier: Apache-2.0
// Parking through the simulated driver, and without a driver. tests/simgpu/test_helper.py tests the end of the socket
// and other users.
#include "gpu/checkpoint.h"

#include "gpu/testing/fake_env.h"
#include "proc/test_support.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>

namespace sublet::gpu {
namespace {

CheckpointReply ask(Parker& parker, CheckpointCall call, std::vector<BallastWish> ballast = {}) {
  return parker.carry_out({1, call, std::chrono::seconds(10), std::move(ballast)});
}

TEST(Parker, WithoutADriverSaysSoToEverything) {
  Parker parker({::getpid(), 0}, "/nowhere/libcuda.so.1", -1);
  for (const auto call : {CheckpointCall::preflight, CheckpointCall::state, CheckpointCall::lock, CheckpointCall::hold,
                          CheckpointCall::restore, CheckpointCall::unlock}) {
    const CheckpointReply reply = ask(parker, call);
    EXPECT_EQ(reply.refusal, CheckpointRefusal::no_driver);
    EXPECT_NE(reply.detail.find("/nowhere/libcuda.so.1"), std::string::npos);
    EXPECT_EQ(reply.call, call);
  }
  parker.leave();
}

TEST(Parker, OfOneThatIsEndingSaysThatItIsGone) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root for a process that stays so";
  const proc::Ending ending;
  Parker parker({ending.pid(), 0}, "/nowhere/libcuda.so.1", -1);
  for (const auto call : {CheckpointCall::preflight, CheckpointCall::state, CheckpointCall::restore})
    EXPECT_EQ(ask(parker, call).refusal, CheckpointRefusal::gone);
}

TEST(Parker, ALibraryThatIsNoDriverIsNamedWithWhatItLacks) {
  const auto loaded = CudaApi::load(fake_library("full"));
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().detail.find("has no cuInit"), std::string::npos) << loaded.error().detail;
  EXPECT_EQ(loaded.error().code, Code::NotFound) << "and lacks it the next time";
  EXPECT_EQ(CudaApi::load("/nowhere/libcuda.so.1").error().code, Code::Unavailable);
  Parker parker({::getpid(), 0}, fake_library("full"), -1);
  EXPECT_EQ(ask(parker, CheckpointCall::state).refusal, CheckpointRefusal::unsupported_driver);
  EXPECT_EQ(CudaApi::load("libcuda.so.1").error().code, Code::BadRequest) << "no absolute path";
}

// A simgpu-load on its own simulated card. The test's body runs in a child process, which loads the driver.
class OnSimulatedCards : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(TEST_SIMCUDA) || !std::filesystem::exists(TEST_LOAD)) {
      GTEST_SKIP() << "the simulated driver is not built: " << TEST_SIMCUDA;
    }
    std::string pattern = (std::filesystem::temp_directory_path() / "sublet-park-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    ::setenv("SIMGPU_DIR", (dir_ + "/cards").c_str(), 1);
    ::setenv("LD_LIBRARY_PATH", std::filesystem::path(TEST_SIMCUDA).parent_path().c_str(), 1);
    finish(start(TEST_CTL, {"create",
                            "1x1GiB,reserve=0,context_bytes=64MiB,link_bandwidth=0,checkpoint_us=0,restore_us=0,"
                            "checkpoint_bandwidth=0,restore_bandwidth=0"}));
    start_load();
  }
  void TearDown() override {
    if (load_ > 0) ::kill(load_, SIGKILL), ::waitpid(load_, nullptr, 0);
    ::unsetenv("SIMGPU_DIR");
    ::unsetenv("LD_LIBRARY_PATH");
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }

  static pid_t start(const char* program, std::vector<std::string> words, int err = -1) {
    words.insert(words.begin(), program);
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (err >= 0) ::dup2(err, 2);
    ::dup2(::open("/dev/null", O_WRONLY), 1);
    ::execv(program, arguments.data());
    ::_exit(127);
  }
  static int finish(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  void start_load() {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    load_ = start(TEST_LOAD, {"--alloc", "256MiB", "--seconds", "1h"}, ends[1]);
    ::close(ends[1]);
    std::string said;
    char byte = 0;
    while (said.find("filled") == std::string::npos && ::read(ends[0], &byte, 1) == 1) said += byte;
    ASSERT_NE(said.find("filled"), std::string::npos) << said;
    ::close(ends[0]);
  }
  void run(const std::function<void()>& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      body();
      ::_exit(HasFailure() ? 1 : 0);
    }
    EXPECT_EQ(finish(pid), 0);
  }

  std::string dir_;
  pid_t load_ = -1;
};

TEST_F(OnSimulatedCards, AProgramIsParkedBroughtBackAndRight) {
  run([&] {
    Parker parker({load_, 0}, TEST_SIMCUDA, -1);
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(ask(parker, CheckpointCall::preflight).state, ParkState::running);
      EXPECT_EQ(ask(parker, CheckpointCall::lock).state, ParkState::locked);
      EXPECT_EQ(ask(parker, CheckpointCall::preflight).refusal, CheckpointRefusal::wrong_state);
      const CheckpointReply parked = ask(parker, CheckpointCall::checkpoint);
      EXPECT_TRUE(parked.ok()) << parked.detail;
      EXPECT_GT(parked.took.count(), 0);
      EXPECT_EQ(ask(parker, CheckpointCall::state).state, ParkState::checkpointed);
      EXPECT_EQ(ask(parker, CheckpointCall::restore).state, ParkState::locked);
      EXPECT_EQ(ask(parker, CheckpointCall::unlock).state, ParkState::running);
    }
  });
  ::kill(load_, SIGTERM);
  EXPECT_EQ(finish(std::exchange(load_, -1)), 128 + SIGTERM) << "its bytes are right";
}

TEST_F(OnSimulatedCards, LeavingUnlocksWhoOnlyWaitsAndNobodyElse) {
  run([&] {
    Parker parker({load_, 0}, TEST_SIMCUDA, -1);
    ASSERT_TRUE(ask(parker, CheckpointCall::lock).ok());
    parker.leave();
    EXPECT_EQ(ask(parker, CheckpointCall::state).state, ParkState::running);
    ASSERT_TRUE(ask(parker, CheckpointCall::lock).ok());
    ASSERT_TRUE(ask(parker, CheckpointCall::checkpoint).ok());
    parker.leave();
    EXPECT_EQ(ask(parker, CheckpointCall::state).state, ParkState::checkpointed);
  });
}

TEST_F(OnSimulatedCards, ADriverThatComesLaterIsFound) {
  run([&] {
    const std::string library = dir_ + "/libcuda.so.1", cards = dir_ + "/cards", away = dir_ + "/away";
    Parker parker({load_, 0}, library, -1);
    EXPECT_EQ(ask(parker, CheckpointCall::preflight).refusal, CheckpointRefusal::no_driver);
    std::filesystem::rename(cards, away);
    std::filesystem::create_symlink(TEST_SIMCUDA, library);
    const CheckpointReply not_started = ask(parker, CheckpointCall::preflight);
    EXPECT_EQ(not_started.refusal, CheckpointRefusal::no_driver);
    EXPECT_NE(not_started.detail.find("does not start"), std::string::npos) << not_started.detail;
    std::filesystem::rename(away, cards);
    EXPECT_TRUE(ask(parker, CheckpointCall::preflight).ok());
  });
}

TEST_F(OnSimulatedCards, ARestoreThatIsRefusedOnceIsTriedOnceMore) {
  finish(start(TEST_CTL, {"fault", "restore-refused", "--nth", "1"}));
  run([&] {
    Parker parker({load_, 0}, TEST_SIMCUDA, -1);
    ASSERT_TRUE(ask(parker, CheckpointCall::lock).ok());
    ASSERT_TRUE(ask(parker, CheckpointCall::checkpoint).ok());
    const CheckpointReply reply = ask(parker, CheckpointCall::restore);
    EXPECT_TRUE(reply.ok()) << reply.detail;
    EXPECT_FALSE(reply.final);
    EXPECT_EQ(reply.code, 0);
    EXPECT_EQ(reply.state, ParkState::locked);
    parker.leave();
  });
}

TEST_F(OnSimulatedCards, ARestoreThatIsRefusedAgainIsFinal) {
  finish(start(TEST_CTL, {"fault", "restore-refused"}));
  run([&] {
    Parker parker({load_, 0}, TEST_SIMCUDA, -1);
    ASSERT_TRUE(ask(parker, CheckpointCall::lock).ok());
    ASSERT_TRUE(ask(parker, CheckpointCall::checkpoint).ok());
    const CheckpointReply reply = ask(parker, CheckpointCall::restore);
    EXPECT_TRUE(reply.final);
    EXPECT_EQ(reply.code, 304);
  });
}

TEST_F(OnSimulatedCards, BallastOnNoCardIsRefusedAndTouchesNothing) {
  run([&] {
    Parker parker({load_, 0}, TEST_SIMCUDA, -1);
    ASSERT_TRUE(ask(parker, CheckpointCall::lock).ok());
    ASSERT_TRUE(ask(parker, CheckpointCall::checkpoint).ok());
    const CheckpointReply reply = ask(parker, CheckpointCall::restore, {{"GPU-nowhere", MiB}});
    EXPECT_EQ(reply.refusal, CheckpointRefusal::no_room);
    EXPECT_FALSE(reply.final);
    EXPECT_EQ(reply.state, ParkState::checkpointed);
    EXPECT_TRUE(ask(parker, CheckpointCall::restore).ok());
    parker.leave();
  });
}

}  // namespace
}  // namespace sublet::gpu
