// SPDX-License-Identifier: Apache-2.0
#include "gpu/sampler.h"

#include "gpu/show.h"
#include "gpu/testing/fake_env.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace sublet::gpu {
namespace {

// Greater than any pid of a kernel.
constexpr int nobodys_pid = 2147483000;

std::uint64_t own_start() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  text.erase(0, text.rfind(')') + 2);
  for (int field = 3; field < 22; ++field) text.erase(0, text.find(' ') + 1);
  return std::stoull(text);
}

TEST(Sampler, ReadsDevicesAndWhoTheProcessesAre) {
  const FakeNvml fake(fmt::format("devices=2;total=1000;reserved=60;used=300;compute={}:100", ::getpid()));
  Sampler sampler(fake_library("full"));
  const GpuSnapshot snapshot = judge(sampler.take());
  EXPECT_EQ(snapshot.problem, "");
  EXPECT_EQ(snapshot.driver_version, "999.1");
  EXPECT_EQ(snapshot.library, fake_library("full"));
  EXPECT_GT(snapshot.began_ns, 0);
  EXPECT_GE(snapshot.ended_ns, snapshot.began_ns);
  ASSERT_EQ(snapshot.devices.size(), 2u);
  const GpuDevice& device = snapshot.devices[1];
  EXPECT_EQ(device.problem, "");
  EXPECT_EQ(device.uuid, "GPU-0000-2");
  EXPECT_EQ(device.index, 1);
  EXPECT_EQ(device.pci_bus_id, "00000000:3B:00.0");
  EXPECT_TRUE(device.simulated);
  EXPECT_EQ(device.total.count, 1000);
  EXPECT_EQ(device.driver_reserved.count, 60);
  EXPECT_EQ(device.used.count, 300);
  ASSERT_EQ(device.processes.size(), 1u);
  EXPECT_EQ(device.processes[0].process, (ProcessRef{::getpid(), own_start()}));
  EXPECT_EQ(device.processes[0].used, Bytes{100});
  const std::string text = show_snapshot(snapshot);
  for (const char* part : {"GPU 1: Simulated Test Card (not a real card)", "GPU-0000-2", "999.1", "100 B"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

TEST(Sampler, RealCardsAreNotCalledSimulated) {
  const FakeNvml fake("name=NVIDIA H200");
  Sampler sampler(fake_library("full"));
  EXPECT_FALSE(sampler.take().devices.at(0).simulated);
}

TEST(Sampler, PidsThatAreNotHereAreForeign) {
  const FakeNvml fake(fmt::format("compute={}:100,{}:5", ::getpid(), nobodys_pid));
  Sampler sampler(fake_library("full"));
  const GpuSnapshot snapshot = judge(sampler.take());
  ASSERT_EQ(snapshot.devices.at(0).processes.size(), 2u);
  EXPECT_FALSE(snapshot.devices[0].processes[0].foreign_pid);
  EXPECT_TRUE(snapshot.devices[0].processes[1].foreign_pid);
  EXPECT_NE(snapshot.devices[0].problem.find(std::to_string(nobodys_pid)), std::string::npos);
  EXPECT_NE(show_snapshot(snapshot).find("no such process here"), std::string::npos);
}

TEST(Sampler, ThreadsOfTheKernelAreNobodysProcesses) {
  const auto tree = std::filesystem::temp_directory_path() / fmt::format("sublet-gpu-proc-{}", ::getpid());
  const auto write = [&](int pid, unsigned flags) {
    std::filesystem::create_directories(tree / std::to_string(pid));
    std::ofstream(tree / std::to_string(pid) / "stat")
        << fmt::format("{} (x) y) S 0 0 0 0 -1 {} 0 0 0 0 0 0 0 0 20 0 1 0 55 0\n", pid, flags);
  };
  write(nobodys_pid, 0x208040);
  write(nobodys_pid + 1, 0x400000);
  const FakeNvml fake(fmt::format("compute={}:100,{}:100", nobodys_pid, nobodys_pid + 1));
  Sampler sampler(fake_library("full"), tree.string());
  const GpuSnapshot snapshot = judge(sampler.take());
  std::filesystem::remove_all(tree);
  ASSERT_EQ(snapshot.devices.at(0).processes.size(), 2u);
  EXPECT_TRUE(snapshot.devices[0].processes[0].foreign_pid);
  EXPECT_FALSE(snapshot.devices[0].processes[1].foreign_pid);
  EXPECT_EQ(snapshot.devices[0].processes[1].process, (ProcessRef{nobodys_pid + 1, 55}));
}

TEST(Sampler, ProcessesThatProcHidesAreNotForeign) {
  const FakeNvml fake(fmt::format("compute={}:100", ::getpid()));
  Sampler sampler(fake_library("full"), "/nowhere");
  const GpuSnapshot snapshot = judge(sampler.take());
  ASSERT_EQ(snapshot.devices.at(0).processes.size(), 1u);
  EXPECT_TRUE(snapshot.devices[0].processes[0].hidden);
  EXPECT_EQ(snapshot.devices[0].problem, "");
}

TEST(Sampler, PidsThatNoneCanHaveAreAProblem) {
  const FakeNvml fake("compute=4294967295:100");
  Sampler sampler(fake_library("full"));
  EXPECT_NE(sampler.take().devices.at(0).problem.find("4294967295"), std::string::npos);
  fake.say("compute=0:100");
  EXPECT_NE(sampler.take().devices.at(0).problem, "");
}

TEST(Sampler, AMissingLibraryIsAProblemUntilItIsThere) {
  const std::string path =
      fmt::format("{}/sublet-gpu-test-{}.so", std::filesystem::temp_directory_path().string(), ::getpid());
  Sampler sampler(path);
  EXPECT_NE(sampler.take().problem.find(path), std::string::npos);
  std::filesystem::copy_file(fake_library("full"), path);
  const FakeNvml fake("devices=1");
  const GpuSnapshot snapshot = sampler.take();
  std::filesystem::remove(path);
  EXPECT_EQ(snapshot.problem, "");
  EXPECT_EQ(snapshot.devices.size(), 1u);
}

TEST(Sampler, DriverThatIsNotLoadedIsAskedAgain) {
  const FakeNvml fake("fail.nvmlInit_v2=9");
  Sampler sampler(fake_library("full"));
  EXPECT_EQ(sampler.take().problem, "nvmlInit: Driver Not Loaded (9)");
  fake.say("devices=1");
  EXPECT_EQ(sampler.take().problem, "");
}

TEST(Sampler, ReloadedDriverIsMendedInTheSameSnapshot) {
  const FakeNvml fake("devices=1");
  Sampler sampler(fake_library("full"));
  ASSERT_EQ(sampler.take().problem, "");
  // Other code in this process shuts NVML down, as a reload of the driver does: every call returns "uninitialized".
  NvmlApi::load(fake_library("full"))->shutdown();
  const GpuSnapshot mended = sampler.take();
  EXPECT_EQ(mended.problem, "");
  EXPECT_EQ(mended.devices.size(), 1u);
}

TEST(Sampler, ErrorsOfTheWholeAreItsProblem) {
  const FakeNvml fake("fail.nvmlDeviceGetCount_v2=999");
  Sampler sampler(fake_library("full"));
  EXPECT_EQ(sampler.take().problem, "nvmlDeviceGetCount: error (999)");
  fake.say("devices=257");
  EXPECT_NE(sampler.take().problem.find("257 devices"), std::string::npos);
}

TEST(Sampler, ALostCardKeepsItsNameAndTheOthersGoOn) {
  const FakeNvml fake("devices=2");
  Sampler sampler(fake_library("full"));
  ASSERT_EQ(sampler.take().devices.size(), 2u);
  fake.say("devices=2;fail.nvmlDeviceGetHandleByIndex_v2.0=15");
  for (int pass = 0; pass < 2; ++pass) {
    const GpuSnapshot snapshot = sampler.take();
    ASSERT_EQ(snapshot.devices.size(), 2u);
    EXPECT_EQ(snapshot.devices[0].uuid, "GPU-0000-1");
    EXPECT_EQ(snapshot.devices[0].problem, "nvmlDeviceGetHandleByIndex: GPU is lost (15)");
    EXPECT_EQ(snapshot.devices[1].problem, "");
  }
  fake.say("devices=2;fail.nvmlDeviceGetComputeRunningProcesses_v3=15");
  const GpuDevice device = sampler.take().devices.at(1);
  EXPECT_NE(device.problem, "");
  EXPECT_EQ(device.total.count, 0) << "no numbers beside a problem";
  EXPECT_TRUE(device.processes.empty());
}

TEST(Sampler, ACardThatWillNotBeNamedIsStillThere) {
  const FakeNvml fake("fail.nvmlDeviceGetUUID=999");
  Sampler sampler(fake_library("full"));
  const GpuSnapshot snapshot = sampler.take();
  ASSERT_EQ(snapshot.devices.size(), 1u);
  EXPECT_EQ(snapshot.devices[0].uuid, "");
  EXPECT_NE(snapshot.devices[0].problem, "");
  EXPECT_TRUE(decode_snapshot(encode_snapshot(1, snapshot)));
  fake.say("uuid=GPU 1\n");
  EXPECT_NE(sampler.take().devices.at(0).problem.find("not a UUID"), std::string::npos);
}

TEST(Sampler, MoreProcessesThanFitAreAProblem) {
  std::string many = "compute=";
  for (int i = 1; i <= 1200; ++i) many += fmt::format("{}{}:1", i == 1 ? "" : ",", i);
  const FakeNvml fake(many);
  Sampler sampler(fake_library("full"));
  EXPECT_NE(sampler.take().devices.at(0).problem.find("1200 processes"), std::string::npos);
}

}  // namespace
}  // namespace sublet::gpu
