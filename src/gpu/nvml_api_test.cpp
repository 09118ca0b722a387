// SPDX-License-Identifier: Apache-2.0
#include "gpu/nvml_api.h"

#include "gpu/testing/fake_env.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace sublet::gpu {
namespace {

struct Started {
  explicit Started(const std::string& kind) : api(std::move(*NvmlApi::load(fake_library(kind)))) { api.init(); }
  ~Started() { api.shutdown(); }
  NvmlApi api;
  NvmlDevice device() const { return api.device(0).value; }
};

std::string show(const Answer<std::vector<NvmlProcess>>& answer) {
  if (!answer) return answer.error;
  std::string text;
  for (const NvmlProcess& p : answer.value) {
    text += fmt::format("{}{}:{}{}", text.empty() ? "" : " ", p.pid, p.used ? std::to_string(p.used->count) : "?",
                        p.graphics_only ? " (draws)" : "");
  }
  return text;
}

TEST(NvmlLoad, SaysWhatIsMissing) {
  EXPECT_EQ(NvmlApi::load("libnvidia-ml.so.1").error().code, Code::BadRequest) << "a plain name is no fixed place";
  const auto none = NvmlApi::load("/nowhere/libnvidia-ml.so.1");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::Unavailable);
  EXPECT_NE(none.error().detail.find("/nowhere/libnvidia-ml.so.1"), std::string::npos) << none.error().detail;
  const auto lacking = NvmlApi::load(fake_library("lacking"));
  ASSERT_FALSE(lacking);
  EXPECT_NE(lacking.error().detail.find("nvmlDeviceGetCount_v2"), std::string::npos) << lacking.error().detail;
  EXPECT_FALSE(NvmlApi::load("/etc/passwd"));
  EXPECT_FALSE(NvmlApi::load("/"));
}

TEST(NvmlLoad, TakesAbsolutePathsBeforeTheLinkersSearch) {
  const auto& paths = nvml_default_paths();
  ASSERT_GT(paths.size(), 1u);
  for (std::size_t i = 0; i + 1 < paths.size(); ++i) EXPECT_EQ(paths[i][0], '/');
  EXPECT_EQ(paths.back(), "libnvidia-ml.so.1");
}

TEST(Nvml, TellsWhatDevicesAre) {
  const FakeNvml fake("devices=2");
  const Started nvml("full");
  EXPECT_EQ(nvml.api.path(), fake_library("full"));
  EXPECT_EQ(nvml.api.driver_version().value, "999.1");
  EXPECT_EQ(nvml.api.device_count().value, 2u);
  const auto identity = nvml.api.identity(nvml.device());
  ASSERT_TRUE(identity) << identity.error;
  EXPECT_EQ(identity.value.name, "Simulated Test Card");
  EXPECT_EQ(identity.value.uuid, "GPU-0000-1");
  EXPECT_EQ(identity.value.pci_bus_id, "00000000:3B:00.0");
}

TEST(Nvml, MemoryTellsTheDriversShareWhereItCan) {
  const FakeNvml fake("total=1000;reserved=60;used=300");
  const Started full("full");
  const auto v2 = full.api.memory(full.device());
  ASSERT_TRUE(v2);
  EXPECT_TRUE(v2.value.v2);
  EXPECT_EQ(v2.value.total.count, 1000);
  EXPECT_EQ(v2.value.reserved.count, 60);
  EXPECT_EQ(v2.value.used.count, 300);
  const Started old("old");
  const auto v1 = old.api.memory(old.device());
  ASSERT_TRUE(v1);
  EXPECT_FALSE(v1.value.v2);
  EXPECT_EQ(v1.value.reserved.count, 0);
  EXPECT_EQ(v1.value.used.count, 360) << "the driver's share is inside";
}

TEST(Nvml, MemoryFallsBackOnlyWhereVersionTwoIsUnknown) {
  const FakeNvml fake("reserved=60;fail.nvmlDeviceGetMemoryInfo_v2=25");
  const Started nvml("full");
  EXPECT_EQ(nvml.api.memory(nvml.device()).value.used.count, 360);
  fake.say("fail.nvmlDeviceGetMemoryInfo_v2=13");
  EXPECT_TRUE(nvml.api.memory(nvml.device()));
  fake.say("fail.nvmlDeviceGetMemoryInfo_v2=15");
  const auto lost = nvml.api.memory(nvml.device());
  EXPECT_EQ(lost.code, NvmlCode::gpu_is_lost);
  EXPECT_EQ(lost.error, "nvmlDeviceGetMemoryInfo_v2: GPU is lost (15)");
  fake.say("fail.nvmlDeviceGetMemoryInfo_v2=25;fail.nvmlDeviceGetMemoryInfo=4242");
  EXPECT_EQ(nvml.api.memory(nvml.device()).error, "nvmlDeviceGetMemoryInfo: error (4242)");
}

TEST(Nvml, AbsurdCountsStayAbsurdAndDoNotOverflow) {
  const FakeNvml fake("total=18446744073709551615;used=18446744073709551614");
  const Started nvml("full");
  EXPECT_EQ(nvml.api.memory(nvml.device()).value.total.count, 1LL << 62);
  EXPECT_EQ(nvml.api.memory(nvml.device()).value.used.count, 1LL << 62);
}

TEST(NvmlProcesses, OfAllKindsOncePerPid) {
  const FakeNvml fake("compute=10:100,11:200,12:na;graphics=11:250,12:7,13:5;mps=13:1,14:na");
  const Started nvml("full");
  EXPECT_EQ(show(nvml.api.processes(nvml.device())), "10:100 11:250 12:7 13:5 14:?");
}

TEST(NvmlProcesses, OnlyDrawIfNoOtherListHasThem) {
  const FakeNvml fake("compute=10:100;graphics=10:5,11:250,12:7;mps=12:9");
  const Started nvml("full");
  EXPECT_EQ(show(nvml.api.processes(nvml.device())), "10:100 11:250 (draws) 12:9");
}

TEST(NvmlProcesses, TwiceInOneListStaysTwice) {
  const FakeNvml fake("compute=10:100,10:100;graphics=10:3");
  const Started nvml("full");
  EXPECT_EQ(show(nvml.api.processes(nvml.device())), "10:100 10:100");
}

TEST(NvmlProcesses, InEveryLayoutThatDriversHad) {
  const FakeNvml fake("compute=10:100,11:200,12:300");
  const Started old("old");
  EXPECT_EQ(show(old.api.processes(old.device())), "10:100 11:200 12:300") << "16 bytes";
  const Started full("full");
  EXPECT_EQ(show(full.api.processes(full.device())), "10:100 11:200 12:300") << "24 bytes";
  for (const int stride : {16, 24, 32}) {
    fake.say(fmt::format("compute=10:100,11:200,12:300;stride={}", stride));
    EXPECT_EQ(show(full.api.processes(full.device())), "10:100 11:200 12:300")
        << stride << " bytes behind the name _v3";
  }
}

TEST(NvmlProcesses, OlderFunctionsAreTriedWhereNewOnesAreUnknown) {
  const FakeNvml fake("compute=10:100;fail.nvmlDeviceGetComputeRunningProcesses_v3=13");
  const Started nvml("full");
  EXPECT_EQ(show(nvml.api.processes(nvml.device())), "10:100");
  fake.say(
      "compute=10:100;fail.nvmlDeviceGetComputeRunningProcesses_v3=13;"
      "fail.nvmlDeviceGetComputeRunningProcesses_v2=25");
  EXPECT_EQ(show(nvml.api.processes(nvml.device())), "10:100");
  fake.say("compute=10:100;fail.nvmlDeviceGetComputeRunningProcesses_v3=15");
  EXPECT_EQ(nvml.api.processes(nvml.device()).code, NvmlCode::gpu_is_lost);
}

TEST(NvmlProcesses, ListsThatGrowAreAskedForAgain) {
  const FakeNvml fake("compute=10:100;grow=3");
  const Started nvml("full");
  EXPECT_EQ(show(nvml.api.processes(nvml.device())), "10:100");
  std::string many = "compute=";
  for (int i = 1; i <= 300; ++i) many += fmt::format("{}{}:{}", i == 1 ? "" : ",", i, i);
  fake.say(many);
  EXPECT_EQ(nvml.api.processes(nvml.device()).value.size(), 300u);
  fake.say("grow=1000");
  const auto endless = nvml.api.processes(nvml.device());
  EXPECT_EQ(endless.code, NvmlCode::insufficient_size);
  fake.say("compute=10:100;count=100000");
  EXPECT_FALSE(nvml.api.processes(nvml.device())) << "more than there was room for";
}

TEST(NvmlProcesses, OtherListsMayBeRefusedButNotBroken) {
  const FakeNvml fake("compute=10:100;graphics=11:1;fail.nvmlDeviceGetGraphicsRunningProcesses_v3=3");
  const Started nvml("full");
  EXPECT_EQ(show(nvml.api.processes(nvml.device())), "10:100");
  fake.say("compute=10:100;fail.nvmlDeviceGetGraphicsRunningProcesses_v3=15");
  EXPECT_EQ(nvml.api.processes(nvml.device()).code, NvmlCode::gpu_is_lost);
}

TEST(Nvml, TheLinkCarriesWhatGenerationAndLanesSay) {
  const auto carries = [](const std::string& says) {
    const FakeNvml fake(says);
    const Started nvml("full");
    return nvml.api.identity(nvml.device()).value.link_per_second;
  };
  EXPECT_EQ(carries(""), Bytes{31'507'200'000}) << "the fourth, 16 lanes";
  EXPECT_EQ(carries("generation=1;lanes=1"), Bytes{250'000'000});
  EXPECT_EQ(carries("generation=0"), Bytes{});
  EXPECT_EQ(carries("generation=9"), Bytes{}) << "nobody knows what that carries";
  EXPECT_EQ(carries("lanes=4000000000"), Bytes{});
  EXPECT_EQ(carries("fail.nvmlDeviceGetCurrPcieLinkWidth=3"), Bytes{}) << "a card on no PCIe bus";
}

TEST(Nvml, MigIsSeen) {
  const FakeNvml fake("mig=1");
  const Started nvml("full");
  EXPECT_TRUE(nvml.api.mig_enabled(nvml.device()).value);
  fake.say("mig=1;fail.nvmlDeviceGetMigMode=3");
  EXPECT_EQ(nvml.api.mig_enabled(nvml.device()).code, NvmlCode::not_supported) << "a card that knows no MIG";
}

}  // namespace
}  // namespace sublet::gpu
