// SPDX-License-Identifier: Apache-2.0
// Streams, events, launches, errors and faults.
#include "driver_test.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "simgpu/tools/kernels.h"
#include "simgpu/tools/kernels_ptx.h"

namespace simgpu {

CUfunction builtin(const char* name) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, kernels::ptx), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
  return function;
}

CUresult launch(CUfunction function, std::vector<std::uint64_t> arguments, CUstream stream) {
  std::vector<void*> pointers;
  for (auto& argument : arguments) pointers.push_back(&argument);
  return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, pointers.data(), nullptr);
}

namespace {

constexpr std::uint64_t ms = 1'000'000;

// A stream whose work waits for a call of open(), so that tests know without timing which work is pending.
class Barrier {
 public:
  explicit Barrier(CUstream stream) {
    EXPECT_EQ(cuLaunchHostFunc(
                  stream, [](void* self) { static_cast<Barrier*>(self)->wait(); }, this),
              CUDA_SUCCESS);
  }
  void open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  void wait() { open_.wait(false); }
  std::atomic<bool> open_{false};
};

struct Mapped {
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle handle = 0;
  void make() {
    const auto properties = on_device(0);
    const auto access = read_write(0);
    OK(cuMemAddressReserve(&base, 2 * mib, 0, 0, 0));
    OK(cuMemCreate(&handle, 2 * mib, &properties, 0));
    OK(cuMemMap(base, 2 * mib, 0, handle, 0));
    OK(cuMemSetAccess(base, 2 * mib, &access, 1));
  }
};

TEST_F(DriverTest, KernelsComputeTheirResults) {
  run_on_card([] {
    constexpr std::uint64_t words = 300'001;
    CUdeviceptr data, out;
    OK(cuMemAlloc_v2(&data, words * 8 + 8));
    OK(cuMemAlloc_v2(&out, 8));
    std::uint64_t result = 0;
    const auto ask = [&](const char* name, std::vector<std::uint64_t> arguments) {
      OK(cuMemsetD32_v2(out, 0, 2));
      OK(launch(builtin(name), std::move(arguments)));
      OK(cuMemcpyDtoH_v2(&result, out, 8));
    };
    OK(launch(builtin("sublet_fill"), {data, words, 42}));
    ask("sublet_check", {data, words, 42, out});
    EXPECT_EQ(result, 0u);
    ask("sublet_check", {data, words, 43, out});
    EXPECT_EQ(result, words);
    std::vector<std::uint64_t> host(words);
    for (std::uint64_t i = 0; i < words; ++i) host[i] = kernels::random_word(42, i);
    ask("sublet_hash", {data, words, out});
    EXPECT_EQ(result, kernels::hash_of_words(host.data(), words, 0));
    OK(launch(builtin("sublet_fill16"), {data, words / 2, 5, 6}));
    OK(cuMemcpyHtoD_v2(data + 8 * 1001, &host[0], 8));
    ask("sublet_check16", {data, words / 2, 5, 6, out});
    EXPECT_EQ(result, 1u);
    for (std::uint64_t i = 0; i + 1 < words; ++i) host[i] = i % 2 ? 6 : 5;
    host[1001] = kernels::random_word(42, 0);
    ask("sublet_hash", {data, words - 1, out});
    EXPECT_EQ(result, kernels::hash_of_words(host.data(), words - 1, 0));
  });
}

TEST_F(DriverTest, PackedArgumentsAreTheSame) {
  run_on_card([] {
    CUdeviceptr data;
    OK(cuMemAlloc_v2(&data, 64));
    struct {
      std::uint64_t address, words, seed;
    } packed{data, 8, 1};
    std::size_t size = sizeof packed;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    const CUfunction fill = builtin("sublet_fill");
    OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
    std::uint64_t word;
    OK(cuMemcpyDtoH_v2(&word, data + 56, 8));
    EXPECT_EQ(word, kernels::random_word(1, 7));
    std::size_t offset;
    OK(cuFuncGetParamInfo(fill, 2, &offset, &size));
    EXPECT_EQ(offset, 16u);
    IS(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(fill, 3, &offset, &size));
    IS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    IS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(fill, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
    IS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(fill, 1, 1, 1, 1025, 1, 1, 0, nullptr, nullptr, extra));
  });
}

TEST_F(DriverTest, CodeIsReadFromItsText) {
  run_on_card([] {
    const char* text =
        ".version 8.0\n.target sm_90\n.address_size 64\n// .entry no(\n"
        ".visible .global .align 4 .b8 table[40];\n"
        ".visible .entry mine(.param .u32 a, .param .align 8 .b8 b[24])\n{ .reg .b32 x; ret; }\n";
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, text));
    IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "no"));
    OK(cuModuleGetFunction(&function, module, "mine"));
    std::size_t offset, size;
    OK(cuFuncGetParamInfo(function, 1, &offset, &size));
    EXPECT_EQ(offset, 8u);
    EXPECT_EQ(size, 24u);
    CUdeviceptr table;
    OK(cuModuleGetGlobal_v2(&table, &size, module, "table"));
    EXPECT_EQ(size, 40u);
    OK(cuMemsetD8_v2(table, 1, 40));
    IS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&table, &size, module, "absent"));
    OK(cuModuleUnload(module));
    IS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction(&function, module, "mine"));
    IS(CUDA_ERROR_INVALID_HANDLE, launch(function, {1, 2}));
    IS(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&module, "not code"));
    IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "\x01\x02\x03\x04"));
  });
}

// The address is resolved when the work runs: the work finds the memory that is mapped then.
TEST_F(DriverTest, AddressesAreResolvedWhenWorkRuns) {
  run_on_card([] {
    CUdeviceptr base;
    OK(cuMemAddressReserve(&base, 2 * mib, 0, 0, 0));
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    Barrier barrier(stream);
    OK(cuMemsetD32Async(base, 77, 4, stream));
    CUmemGenericAllocationHandle handle;
    const auto properties = on_device(0);
    const auto access = read_write(0);
    OK(cuMemCreate(&handle, 2 * mib, &properties, 0));
    OK(cuMemMap(base, 2 * mib, 0, handle, 0));
    OK(cuMemSetAccess(base, 2 * mib, &access, 1));
    barrier.open();
    OK(cuStreamSynchronize(stream));
    unsigned word = 0;
    OK(cuMemcpyDtoH_v2(&word, base + 12, 4));
    EXPECT_EQ(word, 77u);
  });
  EXPECT_EQ(table_->violations(), 0u);
}

TEST_F(DriverTest, UnmappingUnderWorkIsAViolationAndEndsTheContext) {
  run_on_card([] {
    Mapped mapped;
    mapped.make();
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    Barrier barrier(stream);
    OK(launch(builtin("sublet_fill"), {mapped.base, 100, 1}, stream));
    OK(cuMemUnmap(mapped.base, 2 * mib));
    barrier.open();
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    // From now on every call fails alike, until the context is destroyed.
    CUdeviceptr address;
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&address, 1));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(stream));
    OK(cuDevicePrimaryCtxReset_v2(0));
    begin();
    OK(cuMemAlloc_v2(&address, 1));
  });
  EXPECT_EQ(table_->violations(), 1u);
  EXPECT_EQ(table_->violations_by_kind().at(0).name, "unmap under pending work");
}

TEST_F(DriverTest, UnmappingBesideWorkIsNoViolation) {
  run_on_card([] {
    Mapped one, other;
    one.make();
    other.make();
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    Barrier barrier(stream);
    OK(launch(builtin("sublet_fill"), {one.base, 100, 1}, stream));
    OK(cuMemUnmap(other.base, 2 * mib));
    barrier.open();
    OK(cuStreamSynchronize(stream));
    OK(cuMemUnmap(one.base, 2 * mib));
  });
  EXPECT_EQ(table_->violations(), 0u);
}

TEST_F(DriverTest, FreeingWaitsForWork) {
  run_on_card([] {
    CUdeviceptr address;
    CUstream stream;
    OK(cuMemAlloc_v2(&address, mib));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUfunction busy = builtin("sublet_busy"), fill = builtin("sublet_fill");
    OK(launch(busy, {20 * ms}, stream));
    OK(launch(fill, {address, 100, 1}, stream));
    OK(cuMemFree_v2(address));
    OK(cuStreamQuery(stream));
  });
  EXPECT_EQ(table_->violations(), 0u);
}

TEST_F(DriverTest, TheLegacyStreamAndBlockingStreamsWaitForEachOther) {
  run_on_card([] {
    CUdeviceptr word;
    OK(cuMemAlloc_v2(&word, 4));
    CUstream blocking, free_running;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
    Barrier barrier(blocking);
    OK(cuMemsetD32Async(word, 1, 1, blocking));
    OK(cuMemsetD32Async(word, 2, 1, nullptr));   // after the blocking stream
    OK(cuMemsetD32Async(word, 3, 1, blocking));  // after the legacy stream
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(blocking));
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(event, free_running));
    OK(cuEventSynchronize(event));  // depends on no stream
    barrier.open();
    OK(cuStreamSynchronize(blocking));
    unsigned value = 0;
    OK(cuMemcpyDtoH_v2(&value, word, 4));
    EXPECT_EQ(value, 3u);
  });
}

TEST_F(DriverTest, EventsOrderStreamsAndMeasure) {
  run_on_card([] {
    CUstream first, second;
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CUevent begin_event, end, untimed;
    OK(cuEventCreate(&begin_event, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    float milliseconds = 0;
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&milliseconds, begin_event, end));
    OK(cuEventQuery(end));  // never recorded: complete
    OK(cuEventRecord(begin_event, first));
    Barrier barrier(first);
    OK(launch(builtin("sublet_busy"), {5 * ms}, first));
    OK(cuEventRecord(end, first));
    OK(cuStreamWaitEvent(second, end, 0));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
    IS(CUDA_ERROR_NOT_READY, cuEventQuery(end));
    IS(CUDA_ERROR_NOT_READY, cuEventElapsedTime_v2(&milliseconds, begin_event, end));
    barrier.open();
    OK(cuStreamSynchronize(second));
    OK(cuEventElapsedTime_v2(&milliseconds, begin_event, end));
    EXPECT_GE(milliseconds, 4.9F);
    OK(cuEventRecord(untimed, first));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&milliseconds, begin_event, untimed));
    OK(cuEventDestroy_v2(end));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(end));
    OK(cuStreamDestroy_v2(first));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(first));
  });
}

TEST_F(DriverTest, HostFunctionsMayNotCallTheDriver) {
  run_on_card([] {
    static CUresult answer = CUDA_SUCCESS;
    OK(cuLaunchHostFunc(
        nullptr, [](void*) { answer = cuCtxSynchronize(); }, nullptr));
    OK(cuCtxSynchronize());
    EXPECT_EQ(answer, CUDA_ERROR_NOT_PERMITTED);
  });
}

TEST_F(DriverTest, BusyKernelsAreCountedAsTheirProcesss) {
  run_on_card([&] {
    OK(launch(builtin("sublet_busy"), {10 * ms}));
    OK(cuCtxSynchronize());
    EXPECT_EQ(table_->processes().at(0).device[0].busy_ns, 10 * ms);
  });
  EXPECT_EQ(table_->device(0).busy_ns, 10 * ms);
}

TEST_F(DriverTest, PeerAccessIsNeededForKernelsOnly) {
  run_on_card([] {
    CUcontext first, second;
    OK(cuCtxGetCurrent(&first));
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    CUdeviceptr here, there;
    OK(cuMemAlloc_v2(&here, 4096));
    OK(cuCtxPushCurrent_v2(second));
    OK(cuMemAlloc_v2(&there, 4096));
    OK(cuCtxPopCurrent_v2(nullptr));
    OK(cuMemsetD8_v2(here, 'p', 4096));
    OK(cuMemcpyPeer(there, second, here, first, 4096));
    OK(cuCtxEnablePeerAccess(second, 0));
    IS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(second, 0));
    OK(launch(builtin("sublet_fill"), {there, 10, 1}));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(second));
    char byte = 0;
    OK(cuMemcpyDtoH_v2(&byte, there + 4000, 1));
    EXPECT_EQ(byte, 'p');
    OK(launch(builtin("sublet_fill"), {here, 10, 1}));  // no access in this direction
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  });
}

TEST_F(DriverTest, FaultsAreMet) {
  const auto set = [&](FaultKind kind, std::uint64_t nth) {
    table_->clear_faults();
    Fault fault;
    fault.kind = kind;
    fault.nth = nth;
    std::string error;
    ASSERT_TRUE(table_->set_fault(fault, &error)) << error;
  };
  run_on_card([&] {
    CUdeviceptr address, range;
    OK(cuMemAddressReserve(&range, 2 * mib, 0, 0, 0));
    CUmemGenericAllocationHandle handle;
    const auto properties = on_device(0);
    set(FaultKind::alloc_fail, 2);
    OK(cuMemAlloc_v2(&address, 64));
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&address, 64));
    OK(cuMemAlloc_v2(&address, 64));
    set(FaultKind::create_fail, 0);
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 2 * mib, &properties, 0));
    table_->clear_faults();
    OK(cuMemCreate(&handle, 2 * mib, &properties, 0));
    set(FaultKind::map_fail, 0);
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemMap(range, 2 * mib, 0, handle, 0));
    set(FaultKind::register_fail, 0);
    void* host;
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&host, 64, 0));
    set(FaultKind::ecc, 0);
    IS(CUDA_ERROR_ECC_UNCORRECTABLE, cuMemcpyDtoH_v2(&host, address, 8));
    IS(CUDA_ERROR_ECC_UNCORRECTABLE, cuCtxSynchronize());
  });
  set(FaultKind::device_lost, 0);
  run([] {
    CUcontext context;
    OK(cuInit(0));
    IS(CUDA_ERROR_UNKNOWN, cuCtxCreate_v2(&context, 0, 0));
  });
}

TEST_F(DriverTest, AHangLastsUntilItIsCleared) {
  Signal launched;
  Fault fault;
  fault.kind = FaultKind::launch_hang;
  std::string error;
  ASSERT_TRUE(table_->set_fault(fault, &error));
  const pid_t pid = start([&] {
    begin();
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(launch(builtin("sublet_busy"), {1}, stream));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    launched.give();
    OK(cuStreamSynchronize(stream));
  });
  launched.wait();
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), 0);
  table_->clear_faults();
  EXPECT_EQ(finish(pid), 0);
}

TEST_F(DriverTest, TheLinkIsSharedByAllProcesses) {
  create("1x1GiB,reserve=0,context_bytes=0,link_bandwidth=1GB");
  const auto copy = [&] {
    begin();
    CUdeviceptr address;
    OK(cuMemAlloc_v2(&address, 64 * mib));
    std::vector<char> host(64 * mib);
    OK(cuMemcpyHtoD_v2(address, host.data(), host.size()));
  };
  const auto before = std::chrono::steady_clock::now();
  const pid_t pids[] = {start(copy), start(copy)};
  for (const pid_t pid : pids) EXPECT_EQ(finish(pid), 0);
  // 128 MiB over 1 GB/s: never faster, whatever the number of streams.
  EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(134));
  EXPECT_EQ(table_->device(0).link_bytes[0], 128 * mib);
}

}  // namespace
}  // namespace simgpu
