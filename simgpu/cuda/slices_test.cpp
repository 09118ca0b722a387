// SPDX-License-Identifier: Apache-2.0
// The driver's view of MIG slices and of unified memory.
#include <cstring>

#include "driver_test.h"

namespace simgpu {
namespace {

constexpr const char* sliced = "1x1GiB,reserve=0,context_bytes=64MiB,link_bandwidth=0,mig=1g.1gb+1x1GiB,reserve=0";

// The number of devices that a process sees, and the UUID of the first.
std::string seen(const char* visible) {
  if (visible != nullptr) ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
  if (const CUresult result = cuInit(0); result != CUDA_SUCCESS) return "none";
  int count = 0;
  CUuuid uuid{};
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(cuDeviceGetUuid_v2(&uuid, 0), CUDA_SUCCESS);
  std::string first;
  for (const char byte : uuid.bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(byte));
    first += two;
  }
  return std::to_string(count) + " " + first;
}

std::string plain(const std::string& uuid) {
  std::string text = uuid.substr(4);
  std::erase(text, '-');
  return "1 " + text;
}

TEST_F(DriverTest, AProcessSeesOneSliceAndNothingBesideIt) {
  create(sliced);
  const std::string slice = table_->uuid_text(table_->slices_of(0).at(0)), card = table_->uuid_text(1);
  ASSERT_TRUE(slice.starts_with("MIG-"));
  for (const std::string& list : {slice, slice.substr(0, 12), "1," + slice, slice + ",1", std::string("0")})
    run([&] { EXPECT_EQ(seen(list.c_str()), plain(slice)) << list; });
  run([&] { EXPECT_EQ(seen(nullptr), plain(slice)) << "the first slice"; });
  run([&] { EXPECT_EQ(seen("1"), plain(card)); });
  run([&] { EXPECT_EQ(seen("MIG-00000000-0000-0000-0000-000000000000"), "none"); });
  table_->set_mig_mode(0, true);  // without slices
  run([&] { EXPECT_EQ(seen("0"), "none"); });
  run([&] { EXPECT_EQ(seen(slice.c_str()), "none"); });
}

TEST_F(DriverTest, ASliceHasItsOwnMemory) {
  create("1x4GiB,reserve=0,context_bytes=64MiB,mig=1g.1gb*2");
  const auto slices = table_->slices_of(0);
  const auto fill = [&](std::size_t which) {
    ::setenv("CUDA_VISIBLE_DEVICES", table_->uuid_text(slices.at(which)).c_str(), 1);
    begin();
    std::size_t total = 0, available = 0;
    OK(cuMemGetInfo_v2(&available, &total));
    EXPECT_EQ(total, gib);
    EXPECT_EQ(available, gib - 64 * mib);
    CUdeviceptr address = 0;
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, gib));
    OK(cuMemAlloc_v2(&address, 900 * mib));
    EXPECT_EQ(table_->use(slices.at(which)).used(), 964 * mib);
  };
  Signal filled, done;
  const pid_t first = start([&] {
    fill(0);
    filled.give();
    done.wait();
  });
  filled.wait();
  run([&] { fill(1); });
  EXPECT_EQ(table_->use(0).used(), 964 * mib) << "a card adds its slices up";
  done.give();
  EXPECT_EQ(finish(first), 0);
}

TEST_F(DriverTest, ADestroyedSliceFailsItsPrograms) {
  create("1x4GiB,reserve=0,context_bytes=64MiB,mig=1g.1gb*2");
  const unsigned slice = table_->slices_of(0).at(1);
  const std::string uuid = table_->uuid_text(slice);
  run([&] {
    ::setenv("CUDA_VISIBLE_DEVICES", uuid.c_str(), 1);
    begin();
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, 64));
    table_->destroy_slice(slice);
    IS(CUDA_ERROR_UNKNOWN, cuMemAlloc_v2(&address, 64));
    std::string error;
    const auto again = table_->create_slice(0, {1, gib}, &error);
    ASSERT_TRUE(again) << error;
    EXPECT_NE(*again, slice) << "a program still holds something in its place";
    EXPECT_EQ(table_->uuid_text(*again), uuid);
  });
}

TEST_F(DriverTest, AFaultOfTheCardIsOneOfItsSlices) {
  create("1x4GiB,reserve=0,context_bytes=64MiB,mig=1g.1gb*2");
  Fault fault{.kind = FaultKind::device_lost, .device = 0};
  std::string error;
  ASSERT_TRUE(table_->set_fault(fault, &error));
  run([] {
    CUcontext context = nullptr;
    OK(cuInit(0));
    IS(CUDA_ERROR_UNKNOWN, cuCtxCreate_v2(&context, 0, 0));
  });
}

TEST_F(DriverTest, UnifiedMemoryIsIntegrated) {
  create("1x1GiB,unified");
  run([] {
    int integrated = 0;
    OK(cuInit(0));
    OK(cuDeviceGetAttribute(&integrated, 18, 0));
    EXPECT_EQ(integrated, 1);
  });
}

}  // namespace
}  // namespace simgpu
