// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: the rules of the real driver.
#include "driver_test.h"
#include "fd_test.h"

namespace simgpu {
namespace {

// Two mappings side by side in one reservation, access granted.
struct Pair {
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle first = 0, second = 0;
  void make(CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE) {
    const auto properties = on_device(0, types);
    const auto access = read_write(0);
    OK(cuMemAddressReserve(&base, 8 * mib, 0, 0, 0));
    OK(cuMemCreate(&first, 2 * mib, &properties, 0));
    OK(cuMemCreate(&second, 4 * mib, &properties, 0));
    OK(cuMemMap(base, 2 * mib, 0, first, 0));
    OK(cuMemMap(base + 2 * mib, 4 * mib, 0, second, 0));
    OK(cuMemSetAccess(base, 6 * mib, &access, 1));
  }
};

TEST_F(DriverTest, OnlyWholeGranulesFromTheirBeginning) {
  run_on_card([] {
    const auto properties = on_device(0);
    std::size_t granularity = 0;
    OK(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EXPECT_EQ(granularity, 2 * mib);
    CUdeviceptr base;
    CUmemGenericAllocationHandle handle;
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&base, mib, 0, 0, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, mib, &properties, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 0, &properties, 0));
    OK(cuMemAddressReserve(&base, 8 * mib, 16 * mib, 0, 0));
    EXPECT_EQ(base % (16 * mib), 0u);
    OK(cuMemCreate(&handle, 4 * mib, &properties, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, 2 * mib, 2 * mib, handle, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, 2 * mib, 0, handle, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + mib, 4 * mib, 0, handle, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(base + 6 * mib, 4 * mib, 0, handle, 0));
    OK(cuMemMap(base + 2 * mib, 4 * mib, 0, handle, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, 4 * mib, 0, handle, 0));  // overlaps
    IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base + 2 * mib, 2 * mib));    // a part
    IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(base, 8 * mib));              // with gaps
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(base, 8 * mib));        // still mapped
    OK(cuMemUnmap(base + 2 * mib, 4 * mib));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(base, 4 * mib));
    OK(cuMemAddressFree(base, 8 * mib));
    OK(cuMemRelease(handle));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
  });
}

TEST_F(DriverTest, OneAddressForLife) {
  run_on_card([] {
    CUdeviceptr base, again;
    OK(cuMemAddressReserve(&base, 8 * mib, 0, 0, 0));
    OK(cuMemAddressFree(base, 8 * mib));
    OK(cuMemAddressReserve(&again, 4 * mib, 0, base + 4 * mib, 0));
    EXPECT_EQ(again, base + 4 * mib);
  });
}

TEST_F(DriverTest, ReleasedMemoryStaysWhileItIsMapped) {
  run_on_card([] {
    std::size_t before, now, total;
    OK(cuMemGetInfo_v2(&before, &total));
    Pair pair;
    pair.make();
    OK(cuMemRelease(pair.first));
    OK(cuMemRelease(pair.second));
    OK(cuMemGetInfo_v2(&now, &total));
    EXPECT_EQ(before - now, 6 * mib);
    CUmemGenericAllocationHandle again;
    OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(pair.base + 3 * mib)));
    OK(cuMemUnmap(pair.base, 6 * mib));
    OK(cuMemGetInfo_v2(&now, &total));
    EXPECT_EQ(before - now, 4 * mib);
    OK(cuMemRelease(again));
    OK(cuMemGetInfo_v2(&now, &total));
    EXPECT_EQ(before, now);
  });
}

TEST_F(DriverTest, NoAccessBeforeItIsSet) {
  run_on_card([] {
    CUdeviceptr base;
    CUmemGenericAllocationHandle handle;
    const auto properties = on_device(0);
    OK(cuMemAddressReserve(&base, 2 * mib, 0, 0, 0));
    OK(cuMemCreate(&handle, 2 * mib, &properties, 0));
    OK(cuMemMap(base, 2 * mib, 0, handle, 0));
    OK(cuMemsetD8_v2(base, 1, 16));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  });
}

TEST_F(DriverTest, MemoryOutlivesItsMapping) {
  run_on_card([] {
    Pair pair;
    pair.make();
    OK(cuMemsetD8_v2(pair.base, 'm', 6 * mib));
    OK(cuMemUnmap(pair.base, 6 * mib));
    OK(cuMemMap(pair.base + 4 * mib, 4 * mib, 0, pair.second, 0));
    const auto access = read_write(0);
    OK(cuMemSetAccess(pair.base + 4 * mib, 4 * mib, &access, 1));
    char byte = 0;
    OK(cuMemcpyDtoH_v2(&byte, pair.base + 8 * mib - 1, 1));
    EXPECT_EQ(byte, 'm');
  });
}

TEST_F(DriverTest, WorkCrossesMappingsButRangesStopAtThem) {
  run_on_card([] {
    Pair pair;
    pair.make();
    std::vector<char> in(mib, 'x'), out(mib);
    OK(cuMemcpyHtoD_v2(pair.base + 2 * mib - 1000, in.data(), in.size()));
    OK(cuMemcpyDtoH_v2(out.data(), pair.base + 2 * mib - 1000, out.size()));
    EXPECT_EQ(in, out);
    CUdeviceptr start;
    std::size_t size;
    OK(cuMemGetAddressRange_v2(&start, &size, pair.base + 3 * mib));
    EXPECT_EQ(start, pair.base + 2 * mib);
    EXPECT_EQ(size, 4 * mib);
    IS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&start, &size, pair.base + 7 * mib));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(pair.base));
  });
}

TEST_F(DriverTest, MappedMemoryIsNoLegacyMemory) {
  run_on_card([] {
    Pair pair;
    pair.make();
    CUipcMemHandle ipc;
    IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&ipc, pair.base));
    const int yes = 1;
    IS(CUDA_ERROR_NOT_SUPPORTED, cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pair.base));
    CUcontext context = reinterpret_cast<CUcontext>(1);
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pair.base));
    EXPECT_EQ(context, nullptr);
    int flag = 1;
    OK(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pair.base));
    EXPECT_EQ(flag, 0);
    OK(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_MAPPED, pair.base + 7 * mib));
    EXPECT_EQ(flag, 0);
  });
}

TEST_F(DriverTest, MappedMemoryIsNoContexts) {
  run([] {
    OK(cuInit(0));
    CUcontext first, second;
    OK(cuCtxCreate_v2(&first, 0, 0));
    Pair pair;
    pair.make();
    OK(cuMemsetD8_v2(pair.base, 9, 6 * mib));
    OK(cuCtxSynchronize());
    OK(cuCtxDestroy_v2(first));
    OK(cuCtxCreate_v2(&second, 0, 0));
    char byte = 0;
    OK(cuMemcpyDtoH_v2(&byte, pair.base + 5 * mib, 1));
    EXPECT_EQ(byte, 9);
  });
}

TEST_F(DriverTest, MemoryIsSharedByFileDescriptor) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Signal written, checked;
  const pid_t maker = start([&] {
    begin();
    Pair pair;
    pair.make(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    OK(cuMemsetD8_v2(pair.base, 'a', 6 * mib));
    OK(cuCtxSynchronize());
    int fd = -1;
    OK(cuMemExportToShareableHandle(&fd, pair.second, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_fd(ends[0], fd);
    written.wait();
    char byte = 0;
    OK(cuMemcpyDtoH_v2(&byte, pair.base + 3 * mib, 1));
    EXPECT_EQ(byte, 'b');
    ::raise(SIGKILL);
  });
  const pid_t user = start([&] {
    begin();
    const int fd = receive_fd(ends[1]);
    CUmemGenericAllocationHandle handle;
    OK(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    ::close(fd);
    CUdeviceptr base;
    const auto access = read_write(0);
    OK(cuMemAddressReserve(&base, 4 * mib, 0, 0, 0));
    OK(cuMemMap(base, 4 * mib, 0, handle, 0));
    OK(cuMemSetAccess(base, 4 * mib, &access, 1));
    char byte = 0;
    OK(cuMemcpyDtoH_v2(&byte, base + 4 * mib - 1, 1));
    EXPECT_EQ(byte, 'a');
    OK(cuMemsetD8_v2(base + mib, 'b', 1));
    OK(cuCtxSynchronize());
    written.give();
    checked.wait();
    OK(cuMemcpyDtoH_v2(&byte, base + mib, 1));  // its maker is dead
    EXPECT_EQ(byte, 'b');
    written.give();
    checked.wait();
  });
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(finish(maker), 1000 + SIGKILL);
  // Memory that the dead process shared lives on in the processes that still hold it; the rest is freed.
  EXPECT_EQ(table_->use(0).used(), (64 + 4) * mib);
  checked.give();
  written.wait();
  EXPECT_EQ(table_->use(0).exported, 4 * mib);
  checked.give();
  EXPECT_EQ(finish(user), 0);
  EXPECT_EQ(table_->use(0).used(), 0u);
}

TEST_F(DriverTest, OnlyMemoryMadeForExportIsExported) {
  run_on_card([] {
    Pair pair;
    pair.make();
    int fd = -1;
    IS(CUDA_ERROR_INVALID_VALUE,
       cuMemExportToShareableHandle(&fd, pair.first, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUmemGenericAllocationHandle handle;
    IS(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(std::intptr_t{0}),
                                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  });
}

}  // namespace
}  // namespace simgpu
