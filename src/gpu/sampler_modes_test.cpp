// SPDX-License-Identifier: Apache-2.0
// Cards in MIG mode, devices without memory of their own, and wrong answers of each call.
#include "gpu/sampler.h"

#include "gpu/testing/fake_env.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <filesystem>
#include <fstream>

namespace sublet::gpu {
namespace {

std::string problem_of(const GpuSnapshot& snapshot) {
  if (!snapshot.problem.empty()) return snapshot.problem;
  for (const GpuDevice& device : snapshot.devices)
    if (!device.problem.empty()) return device.problem;
  return {};
}

TEST(Mig, SlicesFollowTheirCard) {
  const FakeNvml fake(fmt::format("devices=2;mig=1;slices=3;gap=1;total=1000;used=300;compute={}:100", ::getpid()));
  Sampler sampler(fake_library("full"));
  const GpuSnapshot snapshot = judge(sampler.take());
  EXPECT_EQ(problem_of(snapshot), "");
  ASSERT_EQ(snapshot.devices.size(), 6u);
  const GpuDevice &card = snapshot.devices[3], &slice = snapshot.devices[5];
  EXPECT_TRUE(card.mig);
  EXPECT_EQ(card.total, Bytes{});
  EXPECT_TRUE(card.processes.empty());
  EXPECT_EQ(slice.uuid, "MIG-0000-202");
  EXPECT_EQ(slice.parent, "GPU-0000-2");
  EXPECT_EQ(slice.index, 1);
  EXPECT_EQ(slice.slice, 2);
  EXPECT_FALSE(slice.mig);
  EXPECT_EQ(slice.pci_bus_id, card.pci_bus_id);
  EXPECT_EQ(slice.total.count, 1000);
  EXPECT_EQ(slice.processes.at(0).used, Bytes{100});
  EXPECT_FALSE(slice.processes[0].busy_percent) << "the driver does not tell it of slices";
  const auto decoded = decode_snapshot(encode_snapshot(1, snapshot));
  ASSERT_TRUE(decoded) << decoded.error().detail;
  EXPECT_EQ(decoded->snapshot.devices, snapshot.devices);
}

TEST(Mig, SlicesHaveNoNvlink) {
  const FakeNvml fake("mig=1;slices=1");
  Sampler sampler(fake_library("full"));
  EXPECT_FALSE(sampler.take().devices.at(1).facts.nvlinks);
}

TEST(Mig, ProcessesOfOtherInstancesAreNotOfTheSlice) {
  const FakeNvml fake(fmt::format("mig=1;slices=2;compute={}:100;instance=2", ::getpid()));
  Sampler sampler(fake_library("full"));
  const GpuSnapshot snapshot = sampler.take();
  EXPECT_TRUE(snapshot.devices.at(1).processes.empty());
  EXPECT_EQ(snapshot.devices.at(2).processes.size(), 1u);
}

TEST(Mig, OneSliceOfAnInstanceIsLeased) {
  const FakeNvml fake("mig=1;slices=2;shared=1");
  Sampler sampler(fake_library("full"));
  const GpuSnapshot snapshot = sampler.take();
  ASSERT_EQ(snapshot.devices.size(), 2u) << "the card, and the first slice";
  EXPECT_EQ(snapshot.devices[1].problem, "");
  EXPECT_EQ(snapshot.devices[1].slice, 0);
}

TEST(Mig, SlicesOfACardThatCannotBeReadAreStillThere) {
  const FakeNvml fake("mig=1;slices=2");
  Sampler sampler(fake_library("full"));
  ASSERT_EQ(problem_of(sampler.take()), "");
  for (const char* fault : {"fail.nvmlDeviceGetMigMode=999", "fail.nvmlDeviceGetMigMode=3", "mig=7",
                            "fail.nvmlDeviceGetMaxMigDeviceCount=7", "says.nvmlDeviceGetMaxMigDeviceCount=4000000000",
                            "fail.nvmlDeviceGetHandleByIndex_v2.0=999", "fail.nvmlDeviceGetMigDeviceHandleByIndex=3"}) {
    fake.say(fmt::format("{};mig=1;slices=2", fault));
    const GpuSnapshot snapshot = sampler.take();
    ASSERT_EQ(snapshot.devices.size(), 3u) << fault;
    for (const GpuDevice& device : snapshot.devices) {
      EXPECT_NE(device.problem, "") << fault;
      EXPECT_FALSE(device.lost) << fault;
      EXPECT_EQ(device.total, Bytes{}) << "no numbers beside a problem";
    }
    EXPECT_TRUE(snapshot.devices[0].mig) << fault;
    EXPECT_EQ(snapshot.devices[2].uuid, "MIG-0000-101") << fault;
    fake.say("mig=1;slices=2");
    EXPECT_EQ(problem_of(sampler.take()), "") << fault;
  }
  fake.say("fail.nvmlDeviceGetHandleByIndex_v2.0=15");
  EXPECT_TRUE(sampler.take().devices.at(2).lost) << "a slice of a lost card is lost";
}

TEST(Mig, DestroyedSlicesAndAModeThatIsOffAreSeenAtOnce) {
  const FakeNvml fake("mig=1;slices=2");
  Sampler sampler(fake_library("full"));
  ASSERT_EQ(sampler.take().devices.size(), 3u);
  fake.say("mig=1;slices=2;gap=0");
  GpuSnapshot snapshot = sampler.take();
  ASSERT_EQ(snapshot.devices.size(), 2u);
  EXPECT_EQ(snapshot.devices[1].slice, 1);
  fake.say("mig=0");
  snapshot = sampler.take();
  ASSERT_EQ(snapshot.devices.size(), 1u);
  EXPECT_FALSE(snapshot.devices[0].mig);
  EXPECT_EQ(snapshot.devices[0].total.count, 1000);
}

class Meminfo {
 public:
  explicit Meminfo(const std::string& text)
      : root_((std::filesystem::temp_directory_path() / fmt::format("sublet-gpu-meminfo-{}", ::getpid())).string()) {
    std::filesystem::create_directories(root_);
    say(text);
  }
  ~Meminfo() { std::filesystem::remove_all(root_); }
  Meminfo(const Meminfo&) = delete;
  Meminfo& operator=(const Meminfo&) = delete;
  void say(const std::string& text) const { std::ofstream(root_ + "/meminfo") << text; }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

constexpr const char* no_memory = "name=NVIDIA GB10;fail.nvmlDeviceGetMemoryInfo_v2=3;fail.nvmlDeviceGetMemoryInfo=3";

TEST(Unified, TotalAndUseAreThoseOfTheMachine) {
  const Meminfo machine("MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n");
  const FakeNvml fake(no_memory);
  Sampler sampler(fake_library("full"), machine.root());
  const GpuDevice device = judge(sampler.take()).devices.at(0);
  EXPECT_EQ(device.problem, "");
  EXPECT_TRUE(device.unified);
  EXPECT_EQ(device.total, 16 * GiB);
  EXPECT_EQ(device.used, 12 * GiB);
  EXPECT_EQ(device.driver_reserved, Bytes{});
}

TEST(Unified, ADriverWithoutAProcessListIsReadable) {
  const Meminfo machine("MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n");
  std::string no_list;
  for (const char* version : {"_v3", "_v2", ""})
    no_list += fmt::format(";fail.nvmlDeviceGetComputeRunningProcesses{}=3", version);
  const FakeNvml fake(no_memory + no_list);
  Sampler sampler(fake_library("full"), machine.root());
  const GpuDevice device = judge(sampler.take()).devices.at(0);
  EXPECT_EQ(device.problem, "");
  EXPECT_EQ(device.used, 12 * GiB);
  EXPECT_TRUE(device.processes.empty());
}

TEST(Unified, AMachineThatDoesNotTellGrantsNothing) {
  const Meminfo machine("MemTotal: 16777216 kB\n");
  const FakeNvml fake(no_memory);
  Sampler sampler(fake_library("full"), machine.root());
  EXPECT_NE(sampler.take().devices.at(0).problem.find("MemAvailable"), std::string::npos);
  for (const char* text : {"", "MemTotal: 0 kB\nMemAvailable: 0 kB\n", "MemTotal: many\nMemAvailable: few\n",
                           "MemTotal: -5 kB\nMemAvailable: 1 kB\n"}) {
    machine.say(text);
    EXPECT_NE(sampler.take().devices.at(0).problem, "") << text;
  }
}

TEST(Unified, ACardThatHasMemoryNeverUsesThatOfTheMachine) {
  const Meminfo machine("MemTotal: 16777216 kB\nMemAvailable: 4194304 kB\n");
  const FakeNvml fake("name=NVIDIA H200");
  Sampler sampler(fake_library("full"), machine.root());
  ASSERT_EQ(sampler.take().devices.at(0).total.count, 1000);
  fake.say("name=NVIDIA H200;fail.nvmlDeviceGetMemoryInfo_v2=3;fail.nvmlDeviceGetMemoryInfo=3");
  const GpuDevice device = sampler.take().devices.at(0);
  EXPECT_FALSE(device.unified);
  EXPECT_NE(device.problem.find("nvmlDeviceGetMemoryInfo"), std::string::npos);
  fake.say("name=NVIDIA H200;window=256;fail.nvmlDeviceGetMemoryInfo_v2=3;fail.nvmlDeviceGetMemoryInfo=3");
  Sampler fresh(fake_library("full"), machine.root());
  EXPECT_NE(fresh.take().devices.at(0).problem, "") << "it has a window to its memory";
  fake.say("name=NVIDIA H200;mig=1;slices=1;fail.nvmlDeviceGetMemoryInfo_v2=3;fail.nvmlDeviceGetMemoryInfo=3");
  EXPECT_NE(sampler.take().devices.at(1).problem, "") << "nor does a slice";
}

// Each call that decides something, with a wrong answer. Such an answer is a problem of the device or of the snapshot,
// or the figure is not needed. In no case does it become a number that is not true.
struct WrongAnswer {
  const char* function;
  const char* says = "";  // an option of the fake library with a number that no driver tells
  bool needed = true;     // without the answer nothing is known of the device
  bool older = false;     // an older version of the function may answer
};
class EveryCall : public testing::TestWithParam<WrongAnswer> {};

constexpr const char* divided = "mig=1;slices=2;";

TEST_P(EveryCall, WithAWrongAnswerMakesNothingUp) {
  const WrongAnswer& call = GetParam();
  const FakeNvml fake(divided);
  Sampler good(fake_library("full"));
  const GpuSnapshot truth = judge(good.take());
  ASSERT_EQ(problem_of(truth), "");
  std::vector<std::string> answers;
  for (const int code : {3, 7, 2, 4, 15, 999, 4711, -1})
    answers.push_back(fmt::format("fail.{}={}", call.function, code));
  if (*call.says != '\0') answers.emplace_back(call.says);
  for (const std::string& answer : answers) {
    for (const bool from_the_start : {true, false}) {
      fake.say(from_the_start ? fmt::format("{};{}", answer, divided) : divided);
      Sampler sampler(fake_library("full"));
      if (!from_the_start) (void)sampler.take();
      fake.say(fmt::format("{};{}", answer, divided));
      const GpuSnapshot snapshot = judge(sampler.take());
      EXPECT_TRUE(decode_snapshot(encode_snapshot(1, snapshot))) << answer;
      // A card that never had slices is whole if it says that it has no such mode.
      const bool whole = from_the_start && answer == "fail.nvmlDeviceGetMigMode=3";
      const bool known = !call.needed || call.older || whole;
      EXPECT_TRUE(known || !problem_of(snapshot).empty()) << answer;
      const bool all = from_the_start || !problem_of(snapshot).empty() || snapshot.devices.size() == 3u;
      EXPECT_TRUE(all) << answer;
      for (const GpuDevice& device : snapshot.devices) {
        if (!device.problem.empty() || device.mig) continue;
        EXPECT_EQ(device.total.count, 1000) << answer;
        EXPECT_EQ(device.used.count, 300) << answer;
      }
    }
    fake.say(divided);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Functions, EveryCall,
    testing::Values(WrongAnswer{"nvmlDeviceGetCount_v2", "devices=4000000000"},
                    WrongAnswer{"nvmlDeviceGetHandleByIndex_v2.0"}, WrongAnswer{"nvmlDeviceGetName"},
                    WrongAnswer{"nvmlDeviceGetUUID", "uuid=?"}, WrongAnswer{"nvmlDeviceGetMigMode", "mig=7"},
                    WrongAnswer{"nvmlDeviceGetMaxMigDeviceCount", "says.nvmlDeviceGetMaxMigDeviceCount=4000000000"},
                    WrongAnswer{"nvmlDeviceGetMigDeviceHandleByIndex"},
                    WrongAnswer{"nvmlDeviceGetGpuInstanceId", "says.nvmlDeviceGetGpuInstanceId=4294967294", false},
                    WrongAnswer{"nvmlDeviceGetMemoryInfo_v2", "total=0", true, true},
                    WrongAnswer{"nvmlDeviceGetComputeRunningProcesses_v3", "compute=0:5", true, true},
                    WrongAnswer{"nvmlDeviceGetGraphicsRunningProcesses_v3", "graphics=4294967295:5", false},
                    WrongAnswer{"nvmlDeviceGetMPSComputeRunningProcesses_v3", "mps=0:5", false},
                    WrongAnswer{"nvmlDeviceGetPciInfo_v3", "", false},
                    WrongAnswer{"nvmlDeviceGetMaxPcieLinkGeneration", "generation=4000000000", false},
                    WrongAnswer{"nvmlDeviceGetCurrPcieLinkWidth", "lanes=4000000000", false},
                    WrongAnswer{"nvmlDeviceGetUtilizationRates", "busy=4000000000", false},
                    WrongAnswer{"nvmlDeviceGetProcessUtilization", "samples=7:4000000000", false}),
    [](const auto& call) {
      std::string name = call.param.function;
      std::ranges::replace(name, '.', '_');
      return name;
    });

}  // namespace
}  // namespace sublet::gpu
