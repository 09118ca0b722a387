// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of checkpoints: processes that are parked, and processes that park others.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "driver_test.h"

namespace simgpu {

inline constexpr int out_of_range_pid = 4'194'303;

// The messages that the processes of a test exchange.
struct Board {
  std::atomic<std::uint64_t> calls, progress, go_on;
  std::atomic<int> answer;
};

class CheckpointTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    for (const auto setting :
         {Setting::checkpoint_us, Setting::checkpoint_bandwidth, Setting::restore_us, Setting::restore_bandwidth})
      table_->set(setting, 0);
    void* page = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    board_ = new (page) Board{};
  }
  void TearDown() override {
    for (const pid_t pid : targets_) end(pid);
    ::munmap(board_, sizeof(Board));
    DriverTest::TearDown();
  }

  // Starts a process with a context on the first card. It runs `first`, reports that, waits for go_on(), and runs
  // `then`. Its exit status is 0 if both succeeded.
  pid_t target(
      const Body& first, const Body& then = [] {}) {
    Signal ready;
    const pid_t pid = start([&] {
      begin();
      first();
      ready.give();
      until([&] { return board_->go_on != 0; });
      then();
    });
    ready.wait();
    targets_.push_back(pid);
    return pid;
  }
  void go_on() { board_->go_on = 1; }
  int finished(pid_t pid) {
    std::erase(targets_, pid);
    return finish(pid);
  }
  void end(pid_t pid) {
    ::kill(pid, SIGKILL);
    finished_quietly(pid);
  }
  static void finished_quietly(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
  }
  // Runs in a process of its own, with the driver initialised and without a context.
  void helper(const Body& body) {
    run([&] {
      OK(cuInit(0));
      body();
    });
  }
  template <typename Condition>
  static void until(const Condition& condition) {
    while (!condition()) std::this_thread::yield();
  }
  static void park(pid_t pid) {
    OK(cuCheckpointProcessLock(pid, nullptr));
    OK(cuCheckpointProcessCheckpoint(pid, nullptr));
  }
  static void resume(pid_t pid) {
    OK(cuCheckpointProcessRestore(pid, nullptr));
    OK(cuCheckpointProcessUnlock(pid, nullptr));
  }
  static CUprocessState state(pid_t pid) {
    CUprocessState found{};
    EXPECT_EQ(cuCheckpointProcessGetState(pid, &found), CUDA_SUCCESS);
    return found;
  }
  void fault(FaultKind kind, int after = -1, std::uint64_t code = 0) {
    Fault wanted;
    wanted.kind = kind;
    wanted.after = after;
    wanted.argument = code;
    std::string error;
    ASSERT_TRUE(table_->set_fault(wanted, &error)) << error;
  }

  Board* board_ = nullptr;
  std::vector<pid_t> targets_;
};

inline CUdeviceptr filled(std::uint64_t bytes, std::uint32_t value) {
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc_v2(&memory, bytes), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD32_v2(memory, value, bytes / 4), CUDA_SUCCESS);
  return memory;
}

inline std::uint32_t word_at(CUdeviceptr address) {
  std::uint32_t word = 0;
  EXPECT_EQ(cuMemcpyDtoH_v2(&word, address, sizeof word), CUDA_SUCCESS);
  return word;
}

inline std::uint64_t resident_bytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  std::uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

inline constexpr std::uint64_t residue = 4 * mib;

}  // namespace simgpu
