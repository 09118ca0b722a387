// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of the simulated NVML.
#pragma once

#include "abi.h"
#include "simgpu/table/table.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

namespace simgpu::nvml {

inline constexpr std::uint64_t mib = 1 << 20;

// A process that holds memory of the first card until it is killed or gets the message to free it.
class Holder {
 public:
  Holder(const std::string& dir, std::uint64_t bytes, std::uint64_t busy_ns = 0) {
    std::array<int, 2> to_child{}, to_parent{};
    if (pipe(to_child.data()) != 0 || pipe(to_parent.data()) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) hold(dir, bytes, busy_ns, to_child[0], to_parent[1]);
    close(to_child[0]);
    close(to_parent[1]);
    tell_ = to_child[1];
    hear_ = to_parent[0];
    wait_for_word();
  }
  ~Holder() {
    kill_now();
    close(tell_);
    close(hear_);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  pid_t pid() const { return pid_; }
  void let_go() {
    ASSERT_EQ(write(tell_, "x", 1), 1);
    wait_for_word();
  }
  void kill_now() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  [[noreturn]] static void hold(const std::string& dir, std::uint64_t bytes, std::uint64_t busy_ns, int hear,
                                int tell) {
    std::string error;
    const auto table = Table::open(dir, &error);
    Process* process = table ? table->join(&error) : nullptr;
    if (process == nullptr || !process->charge(0, bytes)) _exit(1);
    process->add_contexts(0, 1);
    process->add_busy(0, busy_ns);
    char word = 'x';
    if (write(tell, &word, 1) != 1 || read(hear, &word, 1) != 1) _exit(1);
    process->add_contexts(0, -1);
    process->discharge(0, bytes);
    if (write(tell, &word, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  void wait_for_word() const {
    char word = 0;
    ASSERT_EQ(read(hear_, &word, 1), 1) << "the holder failed";
  }

  pid_t pid_ = 0;
  int tell_ = -1, hear_ = -1;
};

class Nvml : public testing::Test {
 protected:
  void SetUp() override {
    std::string dir = testing::TempDir() + "nvml-XXXXXX";
    ASSERT_NE(mkdtemp(dir.data()), nullptr);
    dir_ = dir;
    std::string error;
    table_ = Table::create(dir_, *parse_spec("2x4GiB,reserve=64MiB", &error), &error);
    ASSERT_TRUE(table_) << error;
    setenv(directory_variable, dir_.c_str(), 1);
    library_ = dlopen(NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  void TearDown() override {
    while (call("nvmlShutdown") == success) {
    }
    unsetenv(directory_variable);
    std::filesystem::remove_all(dir_);
  }

  void* symbol(const char* name) const {
    void* found = dlsym(library_, name);
    EXPECT_NE(found, nullptr) << name;
    return found;
  }
  template <typename... Arguments>
  int call(const char* name, Arguments... arguments) const {
    return reinterpret_cast<int (*)(Arguments...)>(symbol(name))(arguments...);
  }
  Handle card(unsigned index = 0) const {
    Handle handle = nullptr;
    EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", index, &handle), success);
    return handle;
  }
  int list(std::vector<ProcessInfo>& infos, const char* name = "nvmlDeviceGetComputeRunningProcesses_v3") const {
    auto count = static_cast<Count>(infos.size());
    const int result = call(name, card(), &count, infos.data());
    if (result == success) infos.resize(count);
    return result;
  }
  std::vector<Count> pids(const char* name = "nvmlDeviceGetComputeRunningProcesses_v3") const {
    std::vector<ProcessInfo> infos(16);
    EXPECT_EQ(list(infos, name), success);
    std::vector<Count> all;
    for (const auto& info : infos) all.push_back(info.pid);
    return all;
  }
  void fault(Fault wanted) const {
    std::string error;
    ASSERT_TRUE(table_->set_fault(wanted, &error)) << error;
  }

  std::string dir_;
  std::unique_ptr<Table> table_;
  void* library_ = nullptr;
};

}  // namespace simgpu::nvml
