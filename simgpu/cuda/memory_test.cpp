// SPDX-License-Identifier: Apache-2.0
// Charges for memory, across processes and their deaths.
#include <sys/resource.h>

#include <fstream>
#include <random>
#include <thread>

#include "driver_test.h"

namespace simgpu {
namespace {

TEST_F(DriverTest, AContextAndItsMemoryAreChargedAndFreed) {
  Signal filled, go;
  const pid_t pid = start([&] {
    begin();
    CUdeviceptr a, b;
    OK(cuMemAlloc_v2(&a, 100 * mib));
    OK(cuMemAlloc_v2(&b, 1));
    filled.give();
    go.wait();
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(b));
    filled.give();
    go.wait();
    OK(cuDevicePrimaryCtxRelease_v2(0));
    filled.give();
    go.wait();
  });
  filled.wait();
  EXPECT_EQ(table_->use(0).used(), (64 + 100 + 2) * mib);
  EXPECT_EQ(table_->use(1).used(), 0u);
  ASSERT_EQ(table_->processes().size(), 1u);
  EXPECT_EQ(table_->processes()[0].pid, static_cast<std::uint32_t>(pid));
  EXPECT_EQ(table_->processes()[0].device[0].contexts, 1u);
  go.give();
  filled.wait();
  EXPECT_EQ(table_->use(0).used(), 64 * mib);
  go.give();
  filled.wait();
  EXPECT_EQ(table_->use(0).used(), 0u);
  go.give();
  EXPECT_EQ(finish(pid), 0);
}

TEST_F(DriverTest, SmallAllocationsShareBlocksOfTwoMebibytes) {
  run_on_card([&] {
    std::size_t before, after, total;
    OK(cuMemGetInfo_v2(&before, &total));
    std::vector<CUdeviceptr> all(4096);
    for (auto& address : all) {
      OK(cuMemAlloc_v2(&address, 500));
      EXPECT_EQ(address % 512, 0u);
    }
    OK(cuMemGetInfo_v2(&after, &total));
    EXPECT_EQ(before - after, 2 * mib);
    CUdeviceptr one_more;
    OK(cuMemAlloc_v2(&one_more, 513));
    OK(cuMemGetInfo_v2(&after, &total));
    EXPECT_EQ(before - after, 4 * mib);
    all.push_back(one_more);
    for (const auto address : all) OK(cuMemFree_v2(address));
    OK(cuMemGetInfo_v2(&after, &total));
    EXPECT_EQ(before, after);
  });
}

TEST_F(DriverTest, TheCardIsSharedByAllProcesses) {
  Signal filled, go;
  const pid_t pid = start([&] {
    begin();
    CUdeviceptr address;
    OK(cuMemAlloc_v2(&address, 600 * mib));
    filled.give();
    go.wait();
  });
  filled.wait();
  run_on_card([&] {
    CUdeviceptr address;
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, 300 * mib));
    OK(cuMemAlloc_v2(&address, 296 * mib));
    std::size_t available, total;
    OK(cuMemGetInfo_v2(&available, &total));
    EXPECT_EQ(available, 0u);
    EXPECT_EQ(total, gib);
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, 1));
  });
  EXPECT_EQ(table_->use(0).used(), 664 * mib);
  go.give();
  EXPECT_EQ(finish(pid), 0);
  EXPECT_EQ(table_->use(0).used(), 0u);
}

TEST_F(DriverTest, AContextThatDoesNotFitIsRefused) {
  create("1x64MiB,reserve=0,context_bytes=48MiB");
  run([] {
    CUcontext first, second;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&first, 0, 0));
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuCtxCreate_v2(&second, 0, 0));
    OK(cuCtxDestroy_v2(first));
    OK(cuCtxCreate_v2(&second, 0, 0));
  });
}

TEST_F(DriverTest, DestroyingAContextFreesItsMemory) {
  run([&] {
    OK(cuInit(0));
    CUcontext context;
    OK(cuCtxCreate_v4(&context, nullptr, 0, 0));
    CUdeviceptr big, small, managed;
    void* host;
    OK(cuMemAlloc_v2(&big, 32 * mib));
    OK(cuMemAlloc_v2(&small, 64));
    OK(cuMemAllocManaged(&managed, mib, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemHostAlloc(&host, mib, 0));
    OK(cuCtxDestroy_v2(context));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuMemFree_v2(big));
    CUcontext again;
    OK(cuCtxCreate_v2(&again, 0, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(big));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(context));
    OK(cuCtxDestroy_v2(again));
  });
}

// Kills a process at any point of any call. SUBLET_KILL_STORM sets the number; the default keeps the test short.
TEST_F(DriverTest, AStormOfSigkillsLeavesNoByte) {
  const char* wanted = std::getenv("SUBLET_KILL_STORM");
  const int kills = wanted ? static_cast<int>(std::strtol(wanted, nullptr, 10)) : 200;
  std::mt19937 random(3);
  for (int i = 0; i < kills; ++i) {
    const pid_t pid = start([&] {
      begin(i % 2);
      const auto properties = on_device(i % 2, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      for (;;) {
        CUdeviceptr address = 0, pooled = 0, range = 0;
        CUmemGenericAllocationHandle handle = 0;
        int fd = -1;
        cuMemAlloc_v2(&address, (1 + i % 40) * mib);
        cuMemsetD8_v2(address, 1, mib);
        cuMemAllocAsync(&pooled, mib, nullptr);
        cuMemAddressReserve(&range, 4 * mib, 0, 0, 0);
        cuMemCreate(&handle, 4 * mib, &properties, 0);
        cuMemMap(range, 4 * mib, 0, handle, 0);
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        cuMemRelease(handle);
        cuMemUnmap(range, 4 * mib);
        cuMemAddressFree(range, 4 * mib);
        ::close(fd);
        cuMemFreeAsync(pooled, nullptr);
        cuMemFree_v2(address);
        if (random() % 8 == 0) cuDevicePrimaryCtxReset_v2(i % 2), begin(i % 2);
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 6000));
    ::kill(pid, SIGKILL);
    ASSERT_EQ(finish(pid), 1000 + SIGKILL);
  }
  EXPECT_EQ(table_->use(0).used(), 0u);
  EXPECT_EQ(table_->use(1).used(), 0u);
  EXPECT_TRUE(table_->processes().empty());
  EXPECT_TRUE(std::filesystem::is_empty(dir_ + "/shared"));
}

TEST_F(DriverTest, AForkedChildIsNotInitialised) {
  run_on_card([&] {
    CUdeviceptr address;
    OK(cuMemAlloc_v2(&address, mib));
    const pid_t child = ::fork();
    if (child == 0) {
      std::size_t available, total;
      const bool refused = cuMemFree_v2(address) == CUDA_ERROR_NOT_INITIALIZED &&
                           cuMemGetInfo_v2(&available, &total) == CUDA_ERROR_NOT_INITIALIZED &&
                           cuInit(0) == CUDA_ERROR_NOT_INITIALIZED;
      ::_exit(refused ? 0 : 1);
    }
    EXPECT_EQ(finish(child), 0);
    // Its end took nothing from the parent.
    OK(cuMemFree_v2(address));
  });
}

TEST_F(DriverTest, ForkingBeforeInitIsFine) {
  run([&] {
    int version;
    OK(cuDriverGetVersion(&version));
    EXPECT_EQ(version, 13000);
    const pid_t child = ::fork();
    if (child == 0) {
      begin();
      ::_exit(HasFailure() ? 1 : 0);
    }
    EXPECT_EQ(finish(child), 0);
    begin();
  });
}

struct AtExit {
  CUdeviceptr address = 0;
  bool armed = false;
  ~AtExit() {
    if (armed && cuMemFree_v2(address) != CUDA_SUCCESS) ::_exit(3);
    if (armed && cuCtxSynchronize() != CUDA_SUCCESS) ::_exit(4);
  }
};
AtExit at_exit;

TEST_F(DriverTest, CallsFromStaticDestructorsWork) {
  run_on_card([&] {
    OK(cuMemAlloc_v2(&at_exit.address, 4 * mib));
    at_exit.armed = true;
    std::exit(0);
  });
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * 4096;
}

// Allocates, sets, copies and hashes twenty gibibytes in a few mebibytes of real memory.
TEST_F(DriverTest, ContentsAreSparse) {
  create("1x44GiB,reserve=0,memory_bandwidth=0,link_bandwidth=0");
  run_on_card([&] {
    CUdeviceptr a, b, out;
    OK(cuMemAlloc_v2(&a, 20 * gib));
    OK(cuMemAlloc_v2(&b, 20 * gib));
    OK(cuMemAlloc_v2(&out, 8));
    const std::uint64_t before = resident_bytes();
    OK(cuMemsetD32_v2(a, 0xdecade, 5 * gib));
    const char text[] = "a few bytes somewhere";
    OK(cuMemcpyHtoD_v2(a + 7 * gib + 12345, text, sizeof text));
    OK(cuMemcpyDtoD_v2(b + 12288, a + 100, 19 * gib));
    OK(cuMemsetD32_v2(out, 0, 2));
    OK(launch(builtin("sublet_hash"), {b, 20 * gib / 8, out}));
    OK(cuCtxSynchronize());
    char back[sizeof text];
    OK(cuMemcpyDtoH_v2(back, b + 7 * gib + 12345 + 12288 - 100, sizeof back));
    EXPECT_STREQ(back, text);
    unsigned words[4];
    OK(cuMemcpyDtoH_v2(words, b + 12288 + 16 * gib, sizeof words));
    EXPECT_EQ(words[2], 0xdecadeu);
    EXPECT_LT(resident_bytes() - before, 32 * mib);
  });
}

TEST_F(DriverTest, ArgumentsAreRefusedAsTheDriverDoes) {
  run([] {
    CUdeviceptr address = 0;
    IS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&address, 1));
    IS(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    OK(cuInit(0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&address, 1));
    begin();
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&address, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(nullptr, 1));
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, ~std::size_t{0}));
    OK(cuMemFree_v2(0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(12345));
    OK(cuMemAlloc_v2(&address, 4096));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address + 512));
    char byte = 0;
    IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address + 4096, &byte, 1));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address + 4000, &byte, 4096));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(address + 2, 0, 1));
    OK(cuMemcpyHtoD_v2(address, nullptr, 0));
    OK(cuMemFree_v2(address));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(&byte, address, 1));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&address, 1));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
  });
}

TEST_F(DriverTest, HostMemoryIsPinnedOnce) {
  run_on_card([] {
    std::vector<char> buffer(1 << 16);
    IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(buffer.data()));
    OK(cuMemHostRegister_v2(buffer.data(), buffer.size(), 0));
    IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(buffer.data() + 4096, 4096, 0));
    unsigned type = 0;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&buffer[9])));
    EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
    OK(cuMemHostUnregister(buffer.data()));
    IS(CUDA_ERROR_INVALID_VALUE,
       cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&buffer[9])));
    void* pinned = nullptr;
    OK(cuMemHostAlloc(&pinned, 100, 0));
    OK(cuMemFreeHost(pinned));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));
  });
}

TEST_F(DriverTest, PoolsKeepFreedMemoryUpToTheirThreshold) {
  run_on_card([] {
    CUmemoryPool pool;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    const auto amount = [&](CUmemPool_attribute attribute) {
      std::uint64_t bytes = 0;
      EXPECT_EQ(cuMemPoolGetAttribute(pool, attribute, &bytes), CUDA_SUCCESS);
      return bytes;
    };
    std::uint64_t threshold = 64 * mib;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CUdeviceptr a, b;
    OK(cuMemAllocAsync(&a, 40 * mib, nullptr));
    OK(cuMemAllocAsync(&b, 1000, nullptr));
    EXPECT_EQ(amount(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 40 * mib + 1024);
    EXPECT_EQ(amount(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * mib);
    OK(cuMemFreeAsync(a, nullptr));
    OK(cuMemFreeAsync(b, nullptr));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(b, nullptr));
    OK(cuCtxSynchronize());
    EXPECT_EQ(amount(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
    EXPECT_EQ(amount(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * mib);
    threshold = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    OK(cuCtxSynchronize());
    EXPECT_EQ(amount(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
    EXPECT_EQ(amount(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 64 * mib);
  });
}

TEST_F(DriverTest, CopiesOfRowsKeepTheirPitch) {
  run_on_card([] {
    CUdeviceptr address;
    std::size_t pitch;
    OK(cuMemAllocPitch_v2(&address, &pitch, 10, 4, 4));
    EXPECT_EQ(pitch % 512, 0u);
    const char rows[] = "0123456789abcdefghijABCDEFGHIJ..........";
    CUDA_MEMCPY2D in{};
    in.srcMemoryType = CU_MEMORYTYPE_HOST, in.srcHost = rows, in.srcPitch = 10;
    in.dstMemoryType = CU_MEMORYTYPE_DEVICE, in.dstDevice = address, in.dstPitch = pitch;
    in.WidthInBytes = 10, in.Height = 4;
    OK(cuMemcpy2D_v2(&in));
    char byte;
    OK(cuMemcpyDtoH_v2(&byte, address + 2 * pitch + 3, 1));
    EXPECT_EQ(byte, 'D');
    OK(cuMemsetD2D8_v2(address, pitch, '#', 2, 3));
    char back[40] = {};
    CUDA_MEMCPY3D out{};
    out.srcMemoryType = CU_MEMORYTYPE_DEVICE, out.srcDevice = address, out.srcPitch = pitch, out.srcHeight = 2;
    out.dstMemoryType = CU_MEMORYTYPE_HOST, out.dstHost = back, out.dstPitch = 10, out.dstHeight = 2;
    out.WidthInBytes = 10, out.Height = 2, out.Depth = 2;
    OK(cuMemcpy3D_v2(&out));
    EXPECT_EQ(std::string(back, 40), "##23456789##cdefghij##CDEFGHIJ..........");
    in.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    IS(CUDA_ERROR_NOT_SUPPORTED, cuMemcpy2D_v2(&in));
  });
}

TEST_F(DriverTest, ManyThreadsMayCallAtOnce) {
  run_on_card([] {
    CUcontext context;
    OK(cuCtxGetCurrent(&context));
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 8; ++t)
      threads.emplace_back([context, t] {
        OK(cuCtxSetCurrent(context));
        CUstream stream;
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        for (unsigned i = 0; i < 50; ++i) {
          CUdeviceptr address;
          const std::size_t words = 1000 + 300 * i;
          OK(cuMemAlloc_v2(&address, words * 4));
          OK(cuMemsetD32Async(address, t * 1000 + i, words, stream));
          std::vector<unsigned> back(words);
          OK(cuMemcpyDtoHAsync_v2(back.data(), address, words * 4, stream));
          OK(cuStreamSynchronize(stream));
          for (const unsigned word : back) ASSERT_EQ(word, t * 1000 + i);
          OK(cuMemFree_v2(address));
        }
        OK(cuStreamDestroy_v2(stream));
      });
    for (auto& thread : threads) thread.join();
  });
}

}  // namespace
}  // namespace simgpu
