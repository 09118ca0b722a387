// SPDX-License-Identifier: Apache-2.0
// The calls about MIG slices and about unified memory, each with the answers of the vendor's documentation.
#include "nvml_test.h"

namespace simgpu::nvml {
namespace {

class Slices : public Nvml {
 protected:
  void SetUp() override {
    Nvml::SetUp();
    std::string error;
    table_ = Table::create(dir_, *parse_spec("1x8GiB,mig=1g.2gb*2+3g.4gb+1x4GiB", &error), &error, true);
    ASSERT_TRUE(table_) << error;
    ASSERT_EQ(call("nvmlInit_v2"), success);
  }
  Handle slice(unsigned index) const {
    Handle handle = nullptr;
    EXPECT_EQ(call("nvmlDeviceGetMigDeviceHandleByIndex", card(), index, &handle), success);
    return handle;
  }
  Count number(const char* name, Handle handle) const {
    Count value = 4711;
    EXPECT_EQ(call(name, handle, &value), success) << name;
    return value;
  }
};

TEST_F(Slices, ModesAndHandles) {
  Count current = 7, pending = 7;
  EXPECT_EQ(call("nvmlDeviceGetMigMode", card(), &current, &pending), success);
  EXPECT_EQ(current + pending, 2u);
  EXPECT_EQ(number("nvmlDeviceGetMaxMigDeviceCount", card()), 7u);
  EXPECT_EQ(number("nvmlDeviceGetMaxMigDeviceCount", card(1)), 0u);
  Handle none = nullptr;
  EXPECT_EQ(call("nvmlDeviceGetMigDeviceHandleByIndex", card(), 3u, &none), not_found);
  EXPECT_EQ(call("nvmlDeviceGetMigDeviceHandleByIndex", card(), 7u, &none), invalid_argument);
  EXPECT_EQ(call("nvmlDeviceGetMigDeviceHandleByIndex", card(1), 0u, &none), not_supported);
  EXPECT_EQ(number("nvmlDeviceIsMigDeviceHandle", slice(0)), 1u);
  EXPECT_EQ(number("nvmlDeviceIsMigDeviceHandle", card()), 0u);
  EXPECT_EQ(number("nvmlDeviceGetIndex", slice(2)), 2u);
  EXPECT_EQ(number("nvmlDeviceGetComputeInstanceId", slice(0)), 0u);
  EXPECT_NE(number("nvmlDeviceGetGpuInstanceId", slice(0)), number("nvmlDeviceGetGpuInstanceId", slice(1)));
  Handle parent = nullptr;
  EXPECT_EQ(call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", slice(1), &parent), success);
  EXPECT_EQ(parent, card());
  EXPECT_EQ(call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", card(), &parent), invalid_argument);
}

TEST_F(Slices, IdentityAndAttributes) {
  std::array<char, 96> text{};
  ASSERT_EQ(call("nvmlDeviceGetUUID", slice(2), text.data(), 96u), success);
  EXPECT_TRUE(std::string_view(text.data()).starts_with("MIG-"));
  Handle found = nullptr;
  EXPECT_EQ(call("nvmlDeviceGetHandleByUUID", static_cast<const char*>(text.data()), &found), success);
  EXPECT_EQ(found, slice(2));
  ASSERT_EQ(call("nvmlDeviceGetName", slice(2), text.data(), 96u), success);
  EXPECT_STREQ(text.data(), "Simulated GPU 8GiB MIG 3g.4gb");
  Attributes attributes{};
  ASSERT_EQ(call("nvmlDeviceGetAttributes_v2", slice(2), &attributes), success);
  EXPECT_EQ(attributes.gpu_instance_parts, 3u);
  EXPECT_EQ(attributes.memory_mib, 4096u);
  EXPECT_EQ(call("nvmlDeviceGetAttributes_v2", card(1), &attributes), not_supported);
  Count celsius = 0;
  EXPECT_EQ(call("nvmlDeviceGetTemperature", slice(0), 0u, &celsius), not_supported);
  Utilization rates{};
  EXPECT_EQ(call("nvmlDeviceGetUtilizationRates", card(), &rates), not_supported);
}

TEST_F(Slices, MemoryAndProcessesAreThoseOfTheSlice) {
  const unsigned place = table_->slices_of(0).at(1);
  ASSERT_TRUE(table_->join(nullptr)->charge(place, 100 * mib));
  MemoryV2 memory{version_of<MemoryV2>(2), 0, 0, 0, 0};
  ASSERT_EQ(call("nvmlDeviceGetMemoryInfo_v2", slice(1), &memory), success);
  EXPECT_EQ(memory.total, 2048 * mib);
  EXPECT_EQ(memory.used, 100 * mib);
  ASSERT_EQ(call("nvmlDeviceGetMemoryInfo_v2", slice(0), &memory), success);
  EXPECT_EQ(memory.used, 0u);
  ASSERT_EQ(call("nvmlDeviceGetMemoryInfo_v2", card(), &memory), success);
  EXPECT_EQ(memory.used, 100 * mib);
  for (const Handle handle : {slice(1), card()}) {
    std::array<ProcessInfo, 4> infos{};
    Count count = 4;
    ASSERT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v3", handle, &count, infos.data()), success);
    ASSERT_EQ(count, 1u);
    EXPECT_EQ(infos[0].gpu_instance, number("nvmlDeviceGetGpuInstanceId", slice(1)));
    EXPECT_EQ(infos[0].compute_instance, 0u);
  }
  const Handle gone = slice(1);
  table_->destroy_slice(place);
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo_v2", gone, &memory), invalid_argument);
  Handle none = nullptr;
  EXPECT_EQ(call("nvmlDeviceGetMigDeviceHandleByIndex", card(), 1u, &none), not_found);
}

TEST_F(Nvml, UnifiedMemoryIsNotToldButThatOfTheMachineIs) {
  std::string error;
  table_ = Table::create(dir_, *parse_spec("1x4GiB,reserve=64MiB,unified", &error), &error, true);
  ASSERT_TRUE(table_) << error;
  ASSERT_EQ(call("nvmlInit_v2"), success);
  Memory memory{};
  MemoryV2 newer{version_of<MemoryV2>(2), 0, 0, 0, 0};
  Bar1Memory window{};
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo", card(), &memory), not_supported);
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo_v2", card(), &newer), not_supported);
  EXPECT_EQ(call("nvmlDeviceGetBAR1MemoryInfo", card(), &window), not_supported);
  const Holder holder(dir_, 100 * mib);
  Wide total = 0, available = 0;
  ASSERT_EQ(call("simgpuMachineMemory", card(), &total, &available), success);
  EXPECT_EQ(total, 4096 * mib);
  EXPECT_EQ(available, (4096 - 64 - 100) * mib);
  EXPECT_EQ(pids(), std::vector{static_cast<Count>(holder.pid())});
}

}  // namespace
}  // namespace simgpu::nvml
