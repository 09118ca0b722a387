// SPDX-License-Identifier: Apache-2.0
// The daemon's side with the real program, a Compose program that is a shell script, and no engine.
#include "compose/remote_worker.h"

#include "base/clock.h"
#include "compose/protocol.h"
#include "proc/test_support.h"

#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <csignal>

namespace sublet::compose {
namespace {

namespace asio = boost::asio;

class RemoteWorkerTest : public ::testing::Test {
 protected:
  RemoteWorkerTest() {
    ::umask(022);
    dir_.write("stacks/one/compose.yml", "services: {web: {image: a}}\n");
    // `up` fails while a file "fail" exists, and lasts while a file "hang" exists.
    dir_.write("docker-compose", R"(#!/bin/sh
here=$(dirname "$0")
case "$*" in
  *version*) echo 2.99.0 ;;
  *config) printf 'name: one\nservices:\n  web: {image: a}\n' ;;
  *"up -d") echo up >> "$here/calls"
    while [ -e "$here/hang" ]; do sleep 0.05; done
    [ ! -e "$here/fail" ] || { echo "no room" >&2; exit 7; } ;;
  *down*) echo down >> "$here/calls" ;;
esac
)");
    ::chmod(dir_.path("docker-compose").c_str(), 0755);
  }

  std::unique_ptr<Worker> child() {
    return remote_worker(io_, {.socket = {},
                               .program = TEST_PROGRAM,
                               .engine = "unix://" + dir_.path("engine.sock"),
                               .compose = dir_.path("docker-compose"),
                               .runtime = dir_.path("runtime")});
  }
  // Runs the loop until the condition holds.
  void until(const std::function<bool()>& condition) {
    constexpr std::int64_t limit_ns = 60'000'000'000;
    for (const std::int64_t since = monotonic_ns(); !condition();) {
      ASSERT_LT(monotonic_ns() - since, limit_ns);
      io_.run_one_for(std::chrono::milliseconds(50));
    }
  }
  Result<std::vector<Description>> describe(Worker& worker) {
    std::optional<Result<std::vector<Description>>> found;
    Sources sources;
    sources.dir = dir_.path("stacks");
    worker.describe(sources, [&](Result<std::vector<Description>> stacks) { found = std::move(stacks); });
    until([&] { return found.has_value(); });
    return std::move(*found);
  }
  // The worker takes requests when it has told of its engine.
  void until_ready(Worker& worker) {
    bool ready = false;
    worker.on_engine([&](const Engine& engine) { ready = !engine.program.empty(); });
    until([&] { return ready; });
  }
  Status up(Worker& worker, const std::string& resolved, const std::function<void()>& meanwhile = {}) {
    std::optional<Status> status;
    Start start{.name = "one",
                .project = "one",
                .directory = dir_.path("stacks/one"),
                .resolved = resolved,
                .overlay = {},
                .timeout = std::chrono::minutes(1)};
    worker.up(start, [&](Status done) { status = std::move(done); });
    if (meanwhile) meanwhile();
    until([&] { return status.has_value(); });
    return std::move(*status);
  }
  std::string calls() {
    std::ifstream file(dir_.path("calls"));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The process of the program. Those of earlier tests may not be reaped.
  pid_t program() const {
    std::ifstream file("/proc/self/task/" + std::to_string(::getpid()) + "/children");
    for (pid_t pid = 0; file >> pid;) {
      std::ifstream words("/proc/" + std::to_string(pid) + "/cmdline");
      const std::string text((std::istreambuf_iterator<char>(words)), {});
      if (text.find(dir_.path()) != std::string::npos) return pid;
    }
    ADD_FAILURE() << "the program does not run";
    return ::getpid();
  }

  proc::TempDir dir_;
  asio::io_context io_;
};

TEST_F(RemoteWorkerTest, AChildDescribesStartsAndStops) {
  const auto worker = child();
  std::optional<Engine> engine;
  worker->on_engine([&](const Engine& now) { engine = now; });
  until([&] { return engine && !engine->program.empty(); });
  EXPECT_EQ(engine->program, "docker-compose 2.99.0");
  EXPECT_FALSE(engine->reachable);
  EXPECT_NE(engine->why.find(dir_.path("engine.sock") + " cannot be reached"), std::string::npos) << engine->why;
  const auto stacks = describe(*worker);
  ASSERT_TRUE(stacks);
  ASSERT_EQ(stacks->size(), 1u);
  EXPECT_FALSE(stacks->front().error) << stacks->front().error->detail;
  EXPECT_TRUE(up(*worker, stacks->front().resolved));
  dir_.write("fail", "");
  const auto failed = up(*worker, stacks->front().resolved);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::Unavailable) << "the engine is away";
  EXPECT_EQ(failed.error().detail, "Compose could not start stack 'one': no room");
  std::optional<Status> stopped;
  worker->down({.name = "one", .project = "one", .directory = "/", .resolved = {}, .timeout = std::chrono::minutes(1)},
               [&](Status status) { stopped = std::move(status); });
  until([&] { return stopped.has_value(); });
  EXPECT_TRUE(*stopped);
  EXPECT_EQ(calls(), "up\nup\ndown\n");
}

TEST_F(RemoteWorkerTest, AWorkerThatIsKilledEndsItsCallsAndComesBackWithWhatItKnew) {
  const auto worker = child();
  until_ready(*worker);
  const auto stacks = describe(*worker);
  ASSERT_TRUE(stacks);
  const std::string resolved = stacks->front().resolved;
  std::vector<Engine> engines;
  worker->on_engine([&](const Engine& now) { engines.push_back(now); });
  dir_.write("hang", "");
  const auto lost = up(*worker, resolved, [&] {
    until([&] { return calls() == "up\n"; });
    ::kill(program(), SIGKILL);
  });
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, Code::Unavailable);
  EXPECT_EQ(lost.error().detail, "sublet-stacks is away: it has ended");
  std::filesystem::remove(dir_.path("hang"));
  until([&] { return !engines.empty() && !engines.back().program.empty(); });
  EXPECT_TRUE(std::any_of(engines.begin(), engines.end(),
                          [](const Engine& engine) { return engine.why == "sublet-stacks is away: it has ended"; }));
  // The new worker has read the sources again by itself, and knows the text.
  EXPECT_TRUE(up(*worker, resolved));
}

TEST_F(RemoteWorkerTest, CallsEndAtOnceWhileThereIsNoWorker) {
  const auto worker = remote_worker(
      io_, {.socket = {}, .program = "/nowhere/sublet-stacks", .engine = {}, .compose = {}, .runtime = dir_.path("r")});
  std::optional<Engine> engine;
  worker->on_engine([&](const Engine& now) { engine = now; });
  until([&] { return engine && engine->why.find("cannot start") != std::string::npos; });
  const auto stacks = describe(*worker);
  ASSERT_FALSE(stacks);
  EXPECT_EQ(stacks.error().code, Code::Unavailable);
  EXPECT_EQ(stacks.error().detail,
            "sublet-stacks is away: cannot start /nowhere/sublet-stacks: No such file or directory");
  EXPECT_EQ(up(*worker, "x").error().code, Code::Unavailable);
}

// A listener that answers with given lines.
class FalseWorker {
 public:
  FalseWorker(const std::string& path, std::string lines) : lines_(std::move(lines)) {
    listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
  }
  void serve() {
    Fd accepted(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!accepted) return;
    EXPECT_EQ(::send(accepted.get(), lines_.data(), lines_.size(), MSG_NOSIGNAL), static_cast<ssize_t>(lines_.size()));
    connections_.push_back(std::move(accepted));
  }

 private:
  std::string lines_;
  Fd listener_;
  std::vector<Fd> connections_;
};

TEST_F(RemoteWorkerTest, AWorkerThatSaysNonsenseIsDropped) {
  struct Case {
    std::string lines, why;
  };
  int number = 0;
  for (const Case& one : std::vector<Case>{{"{\"hello\":3}\n", "it uses protocol version 3, not 2"},
                                           {"nonsense\n", "its message is invalid"},
                                           {"{\"hello\":2}\n{\"engine\":{}}\n", "its report is invalid"},
                                           {"{\"hello\":2}\n{\"observation\":7}\n", "its report is invalid"},
                                           {"{\"hello\":2}\n{\"log\":1,\"text\":2}\n", "its report is invalid"}}) {
    const std::string path = dir_.path("s" + std::to_string(++number));
    FalseWorker listener(path, one.lines);
    const auto worker = remote_worker(io_, {.socket = path, .program = {}, .engine = {}, .compose = {}, .runtime = {}});
    std::string why;
    worker->on_engine([&](const Engine& now) { why = now.why; });
    until([&] {
      listener.serve();
      return why == "sublet-stacks is away: " + one.why;
    });
  }
}

TEST_F(RemoteWorkerTest, AListenerOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to listen as another user";
  ::chmod(dir_.path().c_str(), 0777);
  const std::string path = dir_.path("other");
  proc::Child other([&] {
    if (::setresuid(12345, 12345, 12345) != 0) return 1;
    FalseWorker listener(path, "{\"hello\":2}\n");
    return proc::sleep_for_ever();
  });
  const auto worker = remote_worker(io_, {.socket = path, .program = {}, .engine = {}, .compose = {}, .runtime = {}});
  std::string why;
  worker->on_engine([&](const Engine& now) { why = now.why; });
  until([&] { return why.ends_with("the listener runs as uid 12345, not as root"); });
}

TEST_F(RemoteWorkerTest, TheCallbacksOfADestroyedWorkerAreNotCalled) {
  auto worker = child();
  bool called = false;
  Sources sources;
  worker->describe(sources, [&](const auto&) { called = true; });
  worker->on_engine([&](const Engine&) { called = true; });
  worker.reset();
  io_.run();  // all coroutines end
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace sublet::compose
