// SPDX-License-Identifier: Apache-2.0
// Helpers that hang in the driver: the number of abandoned helpers, the tries of new ones, and the recovery.
#include "machine/helper_probe.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <charconv>
#include <set>

namespace sublet::machine {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

// Helpers that sleep in the kernel. They answer nothing, and ignore SIGKILL, until the test ends them.
class Sleepers final : public HelperSystem {
 public:
  explicit Sleepers(asio::io_context& io) : io_(io) {}

  Result<proc::Helper> spawn(const ProbeOptions&) override {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return unavailable("no socket");
    theirs_.emplace_back(ends[1]);
    const pid_t pid = first_pid + static_cast<pid_t>(spawned++);
    if (answering) answer_one(ends[1]);
    return proc::Helper{pid, Fd(ends[0])};
  }
  void kill(pid_t helper) override { killed.insert(helper); }
  bool ended(pid_t helper) override { return dead.contains(helper); }
  asio::awaitable<void> wait(Duration pause) override {
    pauses.push_back(pause);
    if (pauses.size() == stop_at) io_.stop();
    co_await asio::post(io_, asio::use_awaitable);
  }

  // Runs the probe until it has tried this often without a snapshot.
  void run_for(std::size_t tries) {
    stop_at = pauses.size() + tries;
    io_.restart();
    io_.run();
  }

  static constexpr pid_t first_pid = 1000;
  std::size_t spawned = 0;
  std::size_t stop_at = 0;
  std::set<pid_t> killed;
  std::set<pid_t> dead;
  std::vector<Duration> pauses;
  bool answering = false;           // each new helper answers its first question only
  std::uint64_t next_question = 1;  // number of that question

 private:
  // Answers before the question, because the number is known.
  void answer_one(int socket) const {
    const std::string line = gpu::encode_snapshot(next_question, {});
    ASSERT_EQ(::write(socket, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  asio::io_context& io_;
  std::vector<Fd> theirs_;
};

class HelperProbeTest : public ::testing::Test {
 protected:
  void start() {
    probe.start({.snapshot = [this](const gpu::GpuSnapshot&, std::int64_t) { ++snapshots; },
                 .problem = [this](const std::string& problem) { problems.push_back(problem); },
                 .late = [this](const std::string& problem) { delays.push_back(problem); }});
  }

  asio::io_context io;
  Sleepers helpers{io};
  HelperProbe probe{io, {.timeout = 1ms, .interval_busy = 1ms, .interval_idle = 1ms}, &helpers};
  std::vector<std::string> problems, delays;
  int snapshots = 0;
};

TEST_F(HelperProbeTest, NoMoreThanEightAreLeftBehind) {
  start();
  helpers.run_for(20);
  EXPECT_EQ(helpers.spawned, 8U);
  EXPECT_EQ(helpers.killed.size(), 8U) << "each was at least told to end";
  ASSERT_EQ(problems.size(), 20U);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NE(problems[i].find("did not answer"), std::string::npos) << problems[i];
  for (std::size_t i = 8; i < 20; ++i)
    EXPECT_EQ(problems[i], "8 helpers hang in the driver and cannot be killed; no new helper is started");
  EXPECT_EQ(probe.problem(), problems.back());
  EXPECT_EQ(snapshots, 0);
}

// Earlier readings count no more, long before the helper is given up.
TEST_F(HelperProbeTest, AnAnswerThatIsLateIsToldOnceBeforeTheHelperIsGivenUp) {
  HelperProbe slow{io, {.timeout = 20ms, .interval_busy = 1ms, .interval_idle = 1ms, .late = 1ms}, &helpers};
  std::vector<std::string> told;
  slow.start({.snapshot = [](const gpu::GpuSnapshot&, std::int64_t) {},
              .problem = [&told](const std::string& problem) { told.push_back(problem); },
              .late = [&told](const std::string& problem) { told.push_back(problem); }});
  helpers.run_for(3);
  ASSERT_EQ(told.size(), 4U);
  EXPECT_EQ(told[0], "the driver has not answered for 1 ms");
  for (int i = 1; i < 4; ++i) EXPECT_EQ(told[i], "the driver did not answer for 20 ms");
}

TEST_F(HelperProbeTest, PausesDoubleUpToTenSeconds) {
  start();
  helpers.run_for(10);
  EXPECT_EQ(helpers.pauses, (std::vector<Duration>{100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 6400ms, 10s, 10s, 10s}));
}

TEST_F(HelperProbeTest, OneThatEndsMakesRoomForAnother) {
  start();
  helpers.run_for(10);
  ASSERT_EQ(helpers.spawned, 8U);
  helpers.dead.insert(Sleepers::first_pid + 3);
  helpers.answering = true;
  helpers.next_question = 9;  // eight questions were not answered
  helpers.run_for(1);
  EXPECT_EQ(helpers.spawned, 9U);
  EXPECT_EQ(snapshots, 1);
  EXPECT_EQ(helpers.pauses.back(), 100ms) << "it has answered: what follows is a new trouble";
  EXPECT_NE(problems.back().find("did not answer"), std::string::npos) << problems.back();
  helpers.run_for(2);
  EXPECT_EQ(helpers.spawned, 9U) << "it hangs as well: eight again";
  EXPECT_EQ(problems.back(), "8 helpers hang in the driver and cannot be killed; no new helper is started");
}

TEST_F(HelperProbeTest, OneThatCanBeKilledIsForgotten) {
  helpers.answering = true;
  start();
  for (pid_t pid = Sleepers::first_pid; pid < Sleepers::first_pid + 50; ++pid) helpers.dead.insert(pid);
  helpers.run_for(1);
  EXPECT_EQ(snapshots, 1);
  helpers.answering = false;
  helpers.run_for(30);
  EXPECT_EQ(helpers.spawned, 31U) << "nobody is left behind: each could be killed";
}

}  // namespace
}  // namespace sublet::machine
