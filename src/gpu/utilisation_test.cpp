// SPDX-License-Identifier: Apache-2.0
#include "gpu/utilisation.h"

#include "gpu/testing/fake_env.h"

#include <gtest/gtest.h>

namespace sublet::gpu {
namespace {

constexpr std::int64_t second = 1'000'000'000;

class UtilisationTest : public testing::Test {
 protected:
  explicit UtilisationTest(const std::string& kind = "full")
      : api_(std::move(*NvmlApi::load(fake_library(kind)))), utilisation_(api_) {
    api_.init();
  }
  ~UtilisationTest() override { api_.shutdown(); }

  // Reads a second after the last reading. Returns the percentages of the device and of the pids 11 and 12; -1: unset.
  std::vector<int> read(const std::string& says, std::int64_t later = second) {
    const FakeNvml fake(says);
    now_ += later;
    GpuDevice device;
    for (const std::int32_t pid : {11, 12}) device.processes.push_back({.process = {pid, 1}, .used = {}});
    utilisation_.read(api_.device(0).value, device, now_);
    std::vector<int> percent{device.busy_percent.value_or(-1)};
    computing_.clear();
    for (const GpuProcess& process : device.processes) {
      percent.push_back(process.busy_percent.value_or(-1));
      computing_.push_back(process.computing_percent.value_or(-1));
    }
    return percent;
  }

  NvmlApi api_;
  Utilisation utilisation_;
  std::int64_t now_ = 0;
  std::vector<int> computing_;  // percentages of the pids in the last reading; -1: unset
};
using Percent = std::vector<int>;

class UtilisationOfOldDriver : public UtilisationTest {
 protected:
  UtilisationOfOldDriver() : UtilisationTest("old") {}
};

TEST_F(UtilisationTest, AProcessWithoutASampleDidNothing) {
  EXPECT_EQ(read("busy=40;samples=11:35,99:5"), (Percent{40, 35, 0}));
}

TEST_F(UtilisationTest, NoNewSampleMeansThatAllDidNothing) {
  EXPECT_EQ(read("busy=40;samples=11:35;at=7"), (Percent{40, 35, 0}));
  EXPECT_EQ(read("busy=0;samples=11:35;at=7"), (Percent{0, 0, 0})) << "the sample is not newer than the last one";
  EXPECT_EQ(read("busy=9;samples=11:5;at=8"), (Percent{9, 5, 0}));
}

TEST_F(UtilisationTest, WorkIsSeenAfterTheWallClockWasSetBack) {
  EXPECT_EQ(read("busy=40;samples=11:35;at=7000"), (Percent{40, 35, 0}));
  EXPECT_EQ(read("busy=40;samples=11:36;at=3000"), (Percent{40, 36, 0}));
  EXPECT_EQ(read("busy=40;samples=11:37;at=4000"), (Percent{40, 37, 0}));
  EXPECT_EQ(read("busy=0;samples=11:37;at=4000"), (Percent{0, 0, 0})) << "the sample was told before";
  EXPECT_EQ(read("busy=0;samples=12:9;at=2000"), (Percent{0, 0, 9})) << "the device figure tells nothing of short work";
}

TEST_F(UtilisationTest, NobodyIsIdleOnABusyDeviceWithoutSamples) {
  EXPECT_EQ(read("busy=80"), (Percent{80, -1, -1}));
  EXPECT_EQ(read("busy=2"), (Percent{2, 0, 0}));
}

TEST_F(UtilisationTest, TheBusiestSampleOfAProcessCounts) {
  EXPECT_EQ(read("samples=11:35,11:60,11:1"), (Percent{0, 60, 0}));
}

TEST_F(UtilisationTest, ComputingIsTheMeanOfKernelsAlone) {
  EXPECT_EQ(read("samples=11:30,11:51;encoder=90"), (Percent{0, 90, 0}));
  EXPECT_EQ(computing_, (Percent{41, 0}));
  read("samples=11:30,11:900;at=2");
  EXPECT_EQ(computing_, (Percent{-1, 0}));
  read("busy=80");
  EXPECT_EQ(computing_, (Percent{-1, -1}));
}

TEST_F(UtilisationTest, FiguresAreReusedWithinASecond) {
  EXPECT_EQ(read("busy=40;samples=11:35"), (Percent{40, 35, 0}));
  EXPECT_EQ(read("busy=0", second / 2), (Percent{40, 35, 0}));
  EXPECT_EQ(read("busy=0", second / 2), (Percent{0, 0, 0}));
}

TEST_F(UtilisationTest, AProcessThatIsNewSinceTheLastReadingIsUnknown) {
  const FakeNvml fake("busy=0");
  GpuDevice device;
  utilisation_.read(api_.device(0).value, device, second);
  device.processes.push_back({.process = {11, 1}, .used = {}});
  utilisation_.read(api_.device(0).value, device, second + 1);
  EXPECT_EQ(device.processes[0].busy_percent, std::nullopt);
}

TEST_F(UtilisationTest, WhatIsNotSupportedIsAskedOnce) {
  EXPECT_EQ(read("busy=40;samples=11:35;fail.nvmlDeviceGetProcessUtilization=3"), (Percent{40, -1, -1}));
  EXPECT_EQ(read("busy=40;samples=11:35"), (Percent{40, -1, -1}));
  EXPECT_EQ(read("busy=40;samples=11:35;fail.nvmlDeviceGetUtilizationRates=3"), (Percent{-1, -1, -1}));
  EXPECT_EQ(read("busy=40"), (Percent{-1, -1, -1}));
}

TEST_F(UtilisationTest, AnErrorCountsForOneReading) {
  EXPECT_EQ(read("busy=40;fail.nvmlDeviceGetUtilizationRates=999;fail.nvmlDeviceGetProcessUtilization=999"),
            (Percent{-1, -1, -1}));
  EXPECT_EQ(read("busy=40;samples=12:1"), (Percent{40, 0, 1}));
}

TEST_F(UtilisationTest, ImpossiblePercentagesAreUnknown) {
  EXPECT_EQ(read("busy=4000;samples=11:5"), (Percent{-1, 5, 0}));
}

TEST_F(UtilisationTest, MoreSamplesThanExpectedAreRead) {
  std::string samples = "samples=11:7";
  for (int pid = 1000; pid < 1400; ++pid) samples += "," + std::to_string(pid) + ":1";
  EXPECT_EQ(read(samples), (Percent{0, 7, 0}));
}

TEST_F(UtilisationOfOldDriver, ADriverWithoutTheFunctionsTellsNothing) {
  EXPECT_EQ(read("busy=40;samples=11:35"), (Percent{-1, -1, -1}));
}

}  // namespace
}  // namespace sublet::gpu
