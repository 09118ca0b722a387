// SPDX-License-Identifier: Apache-2.0
#include "nvml_test.h"

namespace simgpu::nvml {
namespace {

TEST_F(Nvml, IsUninitializedUntilTheFirstInitAndAfterTheLastShutdown) {
  Count count = 0;
  EXPECT_EQ(call("nvmlDeviceGetCount_v2", &count), uninitialized);
  EXPECT_EQ(call("nvmlInit_v2"), success);
  EXPECT_EQ(call("nvmlInitWithFlags", 0U), success);
  EXPECT_EQ(call("nvmlShutdown"), success);
  EXPECT_EQ(call("nvmlDeviceGetCount_v2", &count), success);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(call("nvmlShutdown"), success);
  EXPECT_EQ(call("nvmlDeviceGetCount_v2", &count), uninitialized);
  EXPECT_EQ(call("nvmlShutdown"), uninitialized);
}

TEST_F(Nvml, HasNoDriverWithoutCards) {
  setenv(directory_variable, "/nonexistent", 1);
  EXPECT_EQ(call("nvmlInit_v2"), driver_not_loaded);
}

TEST_F(Nvml, ExportsEveryNameAndRefusesItUninitialized) {
  std::ifstream names(NVML_NAMES);
  std::string name;
  unsigned asked = 0;
  while (std::getline(names, name)) {
    void* found = dlsym(library_, name.c_str());
    ASSERT_NE(found, nullptr) << name;
    if (name.starts_with("nvmlInit") || name == "nvmlErrorString") continue;
    const auto function = reinterpret_cast<int (*)(void*, void*, void*, void*, void*, void*)>(found);
    EXPECT_EQ(function(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr), uninitialized) << name;
    ++asked;
  }
  EXPECT_GT(asked, 400U);
}

TEST_F(Nvml, RefusesAndCountsUnknownQueries) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  Count speed = 0;
  EXPECT_EQ(call("nvmlDeviceGetFanSpeed", card(), &speed), not_supported);
  const auto calls = table_->calls();
  EXPECT_TRUE(std::any_of(calls.begin(), calls.end(),
                          [](const auto& c) { return c.name == "nvmlDeviceGetFanSpeed" && c.count == 1; }));
}

TEST_F(Nvml, RefusesUnknownHandles) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  Count index = 0;
  Handle handle = nullptr;
  EXPECT_EQ(call("nvmlDeviceGetIndex", Handle(nullptr), &index), invalid_argument);
  EXPECT_EQ(call("nvmlDeviceGetIndex", Handle(&index), &index), invalid_argument);
  EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 2U, &handle), invalid_argument);
  EXPECT_EQ(call("nvmlDeviceGetHandleByUUID", "GPU-00000000-0000-0000-0000-000000000000", &handle), not_found);
}

TEST_F(Nvml, FindsACardByEveryName) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  std::array<char, 96> text{};
  Handle handle = nullptr;
  ASSERT_EQ(call("nvmlDeviceGetUUID", card(1), text.data(), 96U), success);
  EXPECT_EQ(text.data(), table_->uuid_text(1));
  EXPECT_EQ(call("nvmlDeviceGetHandleByUUID", text.data(), &handle), success);
  EXPECT_EQ(handle, card(1));
  ASSERT_EQ(call("nvmlDeviceGetSerial", card(1), text.data(), 96U), success);
  EXPECT_EQ(call("nvmlDeviceGetHandleBySerial", text.data(), &handle), success);
  EXPECT_EQ(handle, card(1));
  PciInfo place{};
  PciInfoV2 old_place{};
  ASSERT_EQ(call("nvmlDeviceGetPciInfo_v3", card(1), &place), success);
  ASSERT_EQ(call("nvmlDeviceGetPciInfo_v2", card(1), &old_place), success);
  EXPECT_EQ(place.bus_id, table_->pci_bus_id(1));
  EXPECT_STREQ(place.bus_id_legacy, old_place.bus_id);
  for (const char* name : {place.bus_id, old_place.bus_id, old_place.bus_id + 5}) {
    handle = nullptr;
    EXPECT_EQ(call("nvmlDeviceGetHandleByPciBusId_v2", name, &handle), success) << name;
    EXPECT_EQ(handle, card(1));
  }
  EXPECT_EQ(call("nvmlDeviceGetHandleByPciBusId_v2", "0001:17:00.0", &handle), not_found);
  EXPECT_EQ(call("nvmlDeviceGetUUID", card(1), text.data(), 40U), insufficient_size);
}

TEST_F(Nvml, MemoryV1CountsTheReserveAsUsedAndV2TellsItApart) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  const Holder holder(dir_, 100 * mib);
  Memory v1{};
  MemoryV2 v2{};
  ASSERT_EQ(call("nvmlDeviceGetMemoryInfo", card(), &v1), success);
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo_v2", card(), &v2), argument_version_mismatch);
  v2.version = version_of<MemoryV2>(2);
  ASSERT_EQ(call("nvmlDeviceGetMemoryInfo_v2", card(), &v2), success);
  EXPECT_EQ(v1.total, 4096 * mib);
  EXPECT_EQ(v1.used, 164 * mib);
  EXPECT_EQ(v1.free, v1.total - v1.used);
  EXPECT_EQ(v2.total, 4096 * mib);
  EXPECT_EQ(v2.reserved, 64 * mib);
  EXPECT_EQ(v2.used, 100 * mib);
  EXPECT_EQ(v2.free, v1.free);
}

TEST_F(Nvml, ProcessListsHaveTheirVersionsShape) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  const Holder one(dir_, 100 * mib), other(dir_, 200 * mib);
  const auto expect_both = [&](Count pid_a, Wide bytes_a, Count pid_b, Wide bytes_b) {
    EXPECT_EQ((std::pair{pid_a, bytes_a}), (std::pair{static_cast<Count>(one.pid()), Wide{100 * mib}}));
    EXPECT_EQ((std::pair{pid_b, bytes_b}), (std::pair{static_cast<Count>(other.pid()), Wide{200 * mib}}));
  };
  std::array<ProcessInfoV1, 3> v1;
  std::memset(v1.data(), 0x5a, sizeof v1);
  Count count = 2;
  ASSERT_EQ(call("nvmlDeviceGetComputeRunningProcesses", card(), &count, v1.data()), success);
  expect_both(v1[0].pid, v1[0].used_bytes, v1[1].pid, v1[1].used_bytes);
  EXPECT_EQ(v1[2].pid, 0x5a5a5a5aU) << "wrote beyond the array";
  for (const char* name : {"nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3"}) {
    std::array<ProcessInfo, 3> infos;
    std::memset(infos.data(), 0x5a, sizeof infos);
    count = 2;
    ASSERT_EQ(call(name, card(), &count, infos.data()), success);
    expect_both(infos[0].pid, infos[0].used_bytes, infos[1].pid, infos[1].used_bytes);
    EXPECT_EQ(infos[0].gpu_instance, no_instance);
    EXPECT_EQ(infos[2].pid, 0x5a5a5a5aU) << "wrote beyond the array";
  }
  std::array<ProcessDetail, 2> details{};
  ProcessDetailList list{version_of<ProcessDetailList>(1), 0, 2, details.data()};
  ASSERT_EQ(call("nvmlDeviceGetRunningProcessDetailList", card(), &list), success);
  expect_both(details[0].pid, details[0].used_bytes, details[1].pid, details[1].used_bytes);
}

TEST_F(Nvml, ATooSmallListReturnsTheNeededSize) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  std::vector<ProcessInfo> none(0);
  EXPECT_EQ(list(none), success) << "nobody there: no room needed";
  const Holder one(dir_, mib), other(dir_, mib);
  Count count = 0;
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v3", card(), &count, static_cast<ProcessInfo*>(nullptr)),
            insufficient_size);
  EXPECT_EQ(count, 2U);
  ProcessInfo info{};
  count = 1;
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v3", card(), &count, &info), insufficient_size);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v3", card(), &count, static_cast<ProcessInfo*>(nullptr)),
            invalid_argument);
}

TEST_F(Nvml, OnlyLivingProcessesWithMemoryAreListed) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  Holder killed(dir_, 100 * mib), done(dir_, 200 * mib);
  EXPECT_EQ(pids().size(), 2U);
  killed.kill_now();
  EXPECT_EQ(pids(), std::vector{static_cast<Count>(done.pid())});
  done.let_go();
  EXPECT_TRUE(pids().empty());
  Memory memory{};
  ASSERT_EQ(call("nvmlDeviceGetMemoryInfo", card(), &memory), success);
  EXPECT_EQ(memory.used, 64 * mib);
}

TEST_F(Nvml, ErrorFaultFailsTheNthQueryOfOneCard) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  const Handle first = card(0), second = card(1);
  fault({.kind = FaultKind::nvml_error, .device = 1, .nth = 2});
  Count index = 0;
  EXPECT_EQ(call("nvmlDeviceGetIndex", first, &index), success);
  EXPECT_EQ(call("nvmlDeviceGetIndex", second, &index), success);
  EXPECT_EQ(call("nvmlDeviceGetIndex", second, &index), unknown);
  EXPECT_EQ(call("nvmlDeviceGetIndex", second, &index), success);
  EXPECT_EQ(call("nvmlDeviceGetCount_v2", &index), success);
}

TEST_F(Nvml, ErrorFaultCanStopTheInit) {
  fault({.kind = FaultKind::nvml_error, .argument = 18});
  EXPECT_EQ(call("nvmlInit_v2"), 18);
  table_->clear_faults();
  EXPECT_EQ(call("nvmlInit_v2"), success);
}

TEST_F(Nvml, HangFaultHoldsUntilItIsCleared) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  fault({.kind = FaultKind::nvml_hang});
  std::atomic<bool> returned = false;
  Count count = 0;
  std::thread asker([&] {
    EXPECT_EQ(call("nvmlDeviceGetCount_v2", &count), success);
    returned = true;
  });
  while (table_->active_faults()[0].hits == 0) std::this_thread::yield();
  EXPECT_FALSE(returned);
  table_->clear_faults();
  asker.join();
  EXPECT_EQ(count, 2U);
}

TEST_F(Nvml, AGraphicsProgramIsInTheGraphicsListAlone) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  const Holder computes(dir_, 100 * mib);
  setenv(drawing_variable, "1", 1);
  const Holder draws(dir_, 200 * mib);
  unsetenv(drawing_variable);
  EXPECT_EQ(pids(), std::vector{static_cast<Count>(computes.pid())});
  EXPECT_EQ(pids("nvmlDeviceGetGraphicsRunningProcesses_v3"), std::vector{static_cast<Count>(draws.pid())});
  EXPECT_TRUE(pids("nvmlDeviceGetMPSComputeRunningProcesses_v3").empty());
}

TEST_F(Nvml, ListFaultsChangeTheListAndNotTheMemory) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  const Holder one(dir_, 100 * mib), other(dir_, 200 * mib);
  fault({.kind = FaultKind::nvml_missing_pid, .argument = static_cast<std::uint64_t>(other.pid())});
  EXPECT_EQ(pids(), std::vector{static_cast<Count>(one.pid())});
  table_->clear_faults();
  fault({.kind = FaultKind::nvml_wrong_namespace, .argument = 40});
  EXPECT_EQ(pids(), (std::vector<Count>{40, 41}));
  table_->clear_faults();
  fault({.kind = FaultKind::nvml_empty});
  EXPECT_TRUE(pids().empty());
  Memory memory{};
  ASSERT_EQ(call("nvmlDeviceGetMemoryInfo", card(), &memory), success);
  EXPECT_EQ(memory.used, 364 * mib);
}

TEST_F(Nvml, LateFaultAnswersWithOldValues) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  Holder holder(dir_, 100 * mib);
  const auto pid = static_cast<Count>(holder.pid());
  EXPECT_EQ(pids(), std::vector{pid});
  fault({.kind = FaultKind::nvml_late});
  holder.kill_now();
  EXPECT_EQ(pids(), std::vector{pid});
  table_->clear_faults();
  EXPECT_TRUE(pids().empty());
}

TEST_F(Nvml, OnlyTheLostCardReportsItsLoss) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  const Handle lost = card(0), other = card(1);
  struct EventSet* set = nullptr;
  ASSERT_EQ(call("nvmlEventSetCreate", &set), success);
  ASSERT_EQ(call("nvmlDeviceRegisterEvents", lost, Wide{8}, set), success);
  EventData event{};
  EXPECT_EQ(call("nvmlEventSetWait_v2", set, &event, 1U), timeout);
  fault({.kind = FaultKind::device_lost, .device = 0});
  Memory memory{};
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo", lost, &memory), gpu_is_lost);
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo", other, &memory), success);
  EXPECT_EQ(call("nvmlEventSetWait_v2", set, &event, 1000U), success);
  EXPECT_EQ(event.device, lost);
  EXPECT_EQ(event.data, 79U);
  EXPECT_EQ(call("nvmlEventSetWait_v2", set, &event, 1U), timeout) << "told once";
  EXPECT_EQ(call("nvmlEventSetFree", set), success);
}

TEST_F(Nvml, UtilizationNamesEachBusyProcess) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  Count count = 0;
  EXPECT_EQ(
      call("nvmlDeviceGetProcessUtilization", card(), static_cast<ProcessUtilizationSample*>(nullptr), &count, Wide{0}),
      not_found);
  const Holder idle(dir_, mib), holder(dir_, mib, 3'600'000'000'000);
  EXPECT_EQ(
      call("nvmlDeviceGetProcessUtilization", card(), static_cast<ProcessUtilizationSample*>(nullptr), &count, Wide{0}),
      insufficient_size);
  ASSERT_EQ(count, 1U);
  ProcessUtilizationSample sample{};
  EXPECT_EQ(call("nvmlDeviceGetProcessUtilization", card(), &sample, &count, Wide{0}), success);
  EXPECT_EQ(sample.pid, static_cast<Count>(holder.pid()));
  EXPECT_EQ(sample.sm, 100U);
  Utilization rates{};
  EXPECT_EQ(call("nvmlDeviceGetUtilizationRates", card(), &rates), success);
  EXPECT_EQ(rates.gpu, 100U);
}

TEST_F(Nvml, UtilizationIsNotSupportedOnSomeCards) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  fault({.kind = FaultKind::nvml_no_utilization, .device = 0});
  Utilization rates{};
  ProcessUtilizationSample sample{};
  Count count = 1;
  EXPECT_EQ(call("nvmlDeviceGetUtilizationRates", card(0), &rates), not_supported);
  EXPECT_EQ(call("nvmlDeviceGetProcessUtilization", card(0), &sample, &count, Wide{0}), not_supported);
  EXPECT_EQ(call("nvmlDeviceGetUtilizationRates", card(1), &rates), success);
}

TEST_F(Nvml, FieldsAnswerOneByOne) {
  ASSERT_EQ(call("nvmlInit_v2"), success);
  std::array<FieldValue, 2> values{};
  values[0].field = 1;
  values[1].field = 99999;
  ASSERT_EQ(call("nvmlDeviceGetFieldValues", card(), 2, values.data()), success);
  EXPECT_EQ(values[0].result, success);
  EXPECT_EQ(values[0].value.ull, 1U);
  EXPECT_EQ(values[1].result, not_supported);
}

}  // namespace
}  // namespace simgpu::nvml
