// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of the simulated driver. Each test body runs in a process of its own, because a process has one
// driver.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simgpu/cuda_abi.h"
#include "simgpu/table/table.h"

#define OK(call) ASSERT_EQ((call), CUDA_SUCCESS) << #call
#define IS(result, call) EXPECT_EQ((call), (result)) << #call

namespace simgpu {

inline constexpr std::uint64_t mib = 1 << 20, gib = 1 << 30;

class DriverTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/simgpu-driver-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    create("2x1GiB,reserve=0,context_bytes=64MiB,link_bandwidth=0");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void create(const char* text) {
    std::string error;
    const auto spec = parse_spec(text, &error);
    ASSERT_TRUE(spec) << error;
    table_ = Table::create(dir_, *spec, &error, true);
    ASSERT_TRUE(table_) << error;
  }

  using Body = std::function<void()>;
  pid_t start(const Body& body) const {
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::setenv(directory_variable, dir_.c_str(), 1);
    body();
    std::fflush(nullptr);
    ::_exit(HasFailure() ? 1 : 0);
  }
  static int finish(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  void run(const Body& body) const { EXPECT_EQ(finish(start(body)), 0); }
  // Runs the body with the first card's primary context current.
  void run_on_card(const Body& body) const {
    run([&] {
      begin();
      if (!HasFatalFailure()) body();
    });
  }
  static void begin(int device = 0) {
    CUcontext context = nullptr;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
  }

  std::string dir_;
  std::unique_ptr<Table> table_;
};

// A pipe on which processes of a test wait for each other.
class Signal {
 public:
  Signal() { EXPECT_EQ(::pipe(ends_), 0); }
  ~Signal() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  void give() const { EXPECT_EQ(::write(ends_[1], "x", 1), 1); }
  void wait() const {
    char byte;
    EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
  }

 private:
  int ends_[2];
};

// Loads the built-in kernels into the current context.
CUfunction builtin(const char* name);
// Launches a kernel with its arguments, eight bytes each.
CUresult launch(CUfunction function, std::vector<std::uint64_t> arguments, CUstream stream = nullptr);

inline CUmemAllocationProp on_device(int device, CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  properties.requestedHandleTypes = types;
  return properties;
}

inline CUmemAccessDesc read_write(int device) {
  return {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

}  // namespace simgpu
