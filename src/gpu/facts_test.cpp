// SPDX-License-Identifier: Apache-2.0
// The figures of a device: one test a call for each kind of answer that the vendor's documentation names.
#include "gpu/facts.h"

#include "gpu/json_line.h"
#include "gpu/testing/fake_env.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace sublet::gpu {
namespace {

constexpr std::int64_t second = 1'000'000'000;

class FactsOf {
 public:
  explicit FactsOf(const std::string& kind = "full") : api_(std::move(*NvmlApi::load(fake_library(kind)))) {
    api_.init();
    reader_.emplace(api_);
  }
  ~FactsOf() {
    reader_.reset();
    api_.shutdown();
  }
  Facts read(const std::string& says, std::int64_t later = second) {
    const FakeNvml fake(says);
    now_ += later;
    return reader_->read(api_.device(0).value, 0, now_);
  }

  Facts last(const std::string& says) {
    const FakeNvml fake(says);
    return reader_->last(0);
  }

 private:
  NvmlApi api_;
  std::optional<FactReader> reader_;
  std::int64_t now_ = 0;
};

// The answers of the fake library without further words.
Facts usual() {
  Facts facts;
  facts.celsius = 41, facts.milliwatts = 61'000, facts.limit_milliwatts = 300'000;
  facts.millijoules = 7'000'000, facts.max_link_generation = 4, facts.max_link_lanes = 16, facts.link_replays = 0;
  facts.nvlinks = 4, facts.capability = 90;
  facts.sm_mhz = 1980, facts.memory_mhz = 3201, facts.link_generation = 4, facts.link_lanes = 16;
  facts.corrected_errors = 5, facts.uncorrected_errors = 0;
  facts.retirement_pending = 0, facts.remapping_pending = 0, facts.remapping_failed = 0;
  return facts;
}

// The figures of one function are unset in these facts.
Facts without(std::string_view function) {
  Facts facts = usual();
  if (function == "nvmlDeviceGetTemperature") facts.celsius.reset();
  if (function == "nvmlDeviceGetPowerUsage") facts.milliwatts.reset();
  if (function == "nvmlDeviceGetEnforcedPowerLimit") facts.limit_milliwatts.reset();
  if (function == "nvmlDeviceGetClockInfo") facts.sm_mhz.reset(), facts.memory_mhz.reset();
  if (function == "nvmlDeviceGetCurrPcieLinkGeneration") facts.link_generation.reset();
  if (function == "nvmlDeviceGetCurrPcieLinkWidth") facts.link_lanes.reset();
  if (function == "nvmlDeviceGetMaxPcieLinkGeneration") facts.max_link_generation.reset();
  if (function == "nvmlDeviceGetMaxPcieLinkWidth") facts.max_link_lanes.reset();
  if (function == "nvmlDeviceGetPcieReplayCounter") facts.link_replays.reset();
  if (function == "nvmlDeviceGetTotalEnergyConsumption") facts.millijoules.reset();
  if (function == "nvmlDeviceGetNvLinkState") facts.nvlinks.reset();
  if (function == "nvmlDeviceGetCudaComputeCapability") facts.capability.reset();
  if (function == "nvmlDeviceGetTotalEccErrors") facts.corrected_errors.reset(), facts.uncorrected_errors.reset();
  if (function == "nvmlDeviceGetRetiredPagesPendingStatus") facts.retirement_pending.reset();
  if (function == "nvmlDeviceGetRemappedRows") facts.remapping_pending.reset(), facts.remapping_failed.reset();
  return facts;
}

class EachCall : public testing::TestWithParam<std::string_view> {};

TEST_P(EachCall, NotSupportedIsAskedOnce) {
  FactsOf device;
  const std::string function(GetParam());
  EXPECT_EQ(device.read(fmt::format("fail.{}=3", function)), without(function));
  EXPECT_EQ(device.read(""), without(function)) << "it is not asked for again";
}

TEST_P(EachCall, InsufficientSizeAndOtherErrorsHideOneReading) {
  for (const int code : {7, 4711, -1, 999, 15}) {
    FactsOf device;
    const std::string function(GetParam());
    EXPECT_EQ(device.read(fmt::format("fail.{}={}", function, code)), without(function)) << code;
    EXPECT_EQ(device.read(""), usual()) << code;
  }
}

TEST_P(EachCall, GarbageIsNoFigure) {
  FactsOf device;
  const std::string function(GetParam());
  EXPECT_EQ(device.read(fmt::format("says.{}=0xffffffffffffffff", function)), without(function));
  EXPECT_EQ(device.read(""), usual());
}

INSTANTIATE_TEST_SUITE_P(Functions, EachCall, testing::ValuesIn(FactReader::functions()),
                         [](const auto& each) { return fmt::format("{}_{}", each.index, each.param); });

TEST(Facts, AreReadAtMostOnceASecond) {
  FactsOf device;
  EXPECT_EQ(device.read(""), usual());
  EXPECT_EQ(device.read("says.nvmlDeviceGetTemperature=90", second / 2).celsius, 41);
  EXPECT_EQ(device.read("says.nvmlDeviceGetTemperature=90", second / 2).celsius, 90);
}

TEST(Facts, OfAnOldDriverAreUnset) {
  FactsOf device("old");
  Facts facts;
  facts.link_lanes = 16;
  facts.max_link_generation = 4;
  EXPECT_EQ(device.read(""), facts);
}

TEST(Facts, ACriticalEventStaysKnown) {
  FactsOf device;
  EXPECT_EQ(device.read("").last_xid, std::nullopt);
  EXPECT_EQ(device.read("xid=48").last_xid, 48);
  const Facts fallen = device.read("xid=79");
  EXPECT_EQ(fallen.last_xid, 79);
  EXPECT_EQ(fallen.falls, 1);
  EXPECT_EQ(device.read("").falls, 1);
  EXPECT_EQ(device.last("xid=31").last_xid, 31) << "a device that the driver does not name has events too";
  EXPECT_EQ(device.last("").celsius, 41);
}

TEST(Facts, GoThroughText) {
  const Facts facts = usual();
  Facts read;
  EXPECT_EQ(read_facts(to_json(facts), read), "");
  EXPECT_EQ(read, facts);
  EXPECT_NE(read_facts({{"temperature_celsius", 151}}, read), "");
  EXPECT_NE(read_facts({{"retirement_pending", true}}, read), "");
  EXPECT_NE(read_facts(7, read), "");
}

TEST(Facts, ADriverWithoutEventsHasTheOtherFigures) {
  FactsOf device;
  EXPECT_EQ(device.read("fail.nvmlDeviceRegisterEvents=3"), usual());
  EXPECT_EQ(device.read("fail.nvmlEventSetWait_v2=15"), usual());
}

}  // namespace
}  // namespace sublet::gpu
