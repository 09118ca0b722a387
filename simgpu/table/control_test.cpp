// SPDX-License-Identifier: Apache-2.0
// Requests between processes: who may send a request when, and the remains of processes that die in a request.
#include "control.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include "table.h"

namespace simgpu {
namespace {

using Kind = ControlAnswer::Kind;
constexpr ControlRequest a_lock{ControlOperation::lock, 5, 3, 0};

class ControlTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/simgpu-control-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    std::string error;
    table_ = Table::create(dir_, *parse_spec("1x1GiB", &error), &error);
    ASSERT_TRUE(table_) << error;
  }
  void TearDown() override {
    for (const pid_t pid : children_) end(pid);
    std::filesystem::remove_all(dir_);
  }
  pid_t start(const std::function<void(Table&, Process&)>& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      std::string error;
      const auto table = Table::open(dir_, &error);
      body(*table, *table->join(&error));
      ::_exit(HasFailure() ? 1 : 0);
    }
    children_.push_back(pid);
    return pid;
  }
  // Answers each lock with its argument and devices, and serves no other request until it ends.
  pid_t server() {
    const pid_t pid = start([](Table&, Process& process) {
      process.serve(1);
      for (;;) {
        const ControlRequest request = process.next_request();
        if (request.operation != ControlOperation::lock) ::pause();
        process.answer(request, static_cast<int>(request.argument), request.devices);
      }
    });
    while (ask(pid).kind == Kind::nobody) std::this_thread::yield();
    return pid;
  }
  ControlAnswer ask(pid_t pid, const ControlRequest& request = a_lock, bool patient = false) {
    return table_->ask(static_cast<std::uint32_t>(pid), *table_->join(nullptr), request, patient);
  }
  void end(pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  layout::ControlRecord& record_of(pid_t pid) {
    for (auto& slot : table_->raw().process)
      if (layout::owner_pid(slot.owner.load()) == static_cast<std::uint32_t>(pid)) return slot.control;
    throw std::runtime_error("no such process");
  }

  std::string dir_;
  std::unique_ptr<Table> table_;
  std::vector<pid_t> children_;
};

TEST_F(ControlTest, ARequestIsAnswered) {
  const pid_t pid = server();
  const ControlAnswer answer = ask(pid);
  EXPECT_EQ(answer.kind, Kind::answered);
  EXPECT_EQ(answer.result, 5);
  EXPECT_EQ(answer.value, 3u);
  EXPECT_EQ(ask(::getpid()).kind, Kind::nobody);
}

TEST_F(ControlTest, OtherCallersAreBusyDuringARequest) {
  const pid_t pid = server();
  const pid_t first = start([&](Table& table, Process& process) {
    table.ask(static_cast<std::uint32_t>(pid), process, {ControlOperation::unlock, 0, 0, 0}, false);
  });
  auto& record = record_of(pid);
  while (record.request.load() >> 8 == record.answered.load()) std::this_thread::yield();
  EXPECT_EQ(ask(pid).kind, Kind::busy);
  end(first);
  EXPECT_EQ(ask(pid).kind, Kind::busy);  // its request is still in progress
  end(pid);
  EXPECT_EQ(ask(pid).kind, Kind::nobody);
}

TEST_F(ControlTest, ADeadCallerFreesItsPlaceOnceAnswered) {
  const pid_t pid = server();
  const pid_t dead = start([](Table&, Process&) {});
  ::waitpid(dead, nullptr, 0);
  record_of(pid).caller = layout::owner_ready | layout::owner_identity(static_cast<std::uint32_t>(dead), 1);
  EXPECT_EQ(ask(pid).kind, Kind::answered);
}

TEST_F(ControlTest, ARequestForThePreviousOwnerOfTheSlotIsDropped) {
  const pid_t pid = server();
  auto& record = record_of(pid);
  record.target = layout::owner_ready | layout::owner_identity(1, 1);
  const std::uint64_t number = (record.request.load() >> 8) + 1;
  record.result = 77;
  record.request = number << 8 | static_cast<unsigned>(ControlOperation::unlock);
  // The server would not answer an unlock. An answer to the next request shows that the server skipped the unlock.
  while (record.answered.load() != number) {
    record.bell.fetch_add(1);
    EXPECT_EQ(ask(pid, {ControlOperation::lock, 9, 0, 0}, true).result, 9);
    break;
  }
}

}  // namespace
}  // namespace simgpu
