// SPDX-License-Identifier: Apache-2.0
// Captures and graphs, kernels that run at the same time, and time as the card tells it.
#include "driver_test.h"

#include <atomic>
#include <thread>

namespace simgpu {
namespace {

constexpr std::uint64_t ms = 1'000'000;

int status_of(CUstream stream) {
  int status = 7;
  EXPECT_EQ(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
  return status;
}

struct Captured : DriverTest {
  CUstream stream = nullptr, other = nullptr;
  CUgraph graph = nullptr;
  void begin_capture(int mode = 0) {
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, mode));
    EXPECT_EQ(status_of(stream), 1);
  }
  void is_lost() {
    EXPECT_EQ(status_of(stream), 2);
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, launch(builtin("sublet_busy"), {1}, stream));
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(status_of(stream), 0);
  }
};

TEST_F(Captured, LaunchesOfAGraphRunWhenTheGraphIsLaunched) {
  run_on_card([&] {
    CUdeviceptr data;
    std::uint64_t word = 0;
    CUgraphExec executable = nullptr;
    OK(cuMemAlloc_v2(&data, 16));
    OK(cuMemsetD32_v2(data, 0, 4));
    begin_capture();
    OK(launch(builtin("sublet_fill16"), {data, 1, 5, 6}, stream));
    OK(launch(builtin("sublet_hash"), {data, 1, data + 8}, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuMemcpyDtoH_v2(&word, data, 8));
    EXPECT_EQ(word, 0u) << "a captured launch has run";
    OK(cuGraphInstantiateWithFlags(&executable, graph, 0));
    OK(cuGraphDestroy(graph));
    IS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    OK(cuGraphLaunch(executable, stream));
    OK(cuGraphExecDestroy(executable));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(&word, data, 8));
    EXPECT_EQ(word, 5u);
    OK(cuMemcpyDtoH_v2(&word, data + 8, 8));
    EXPECT_NE(word, 6u) << "the second launch of the graph has not run";
    IS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(executable, stream));
  });
}

TEST_F(Captured, CallsThatACaptureCannotTakeEndIt) {
  run_on_card([&] {
    begin_capture();
    IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(stream, 0));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
    is_lost();
    IS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream, &graph));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(nullptr, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCapture_v2(stream, 3));
  });
  run_on_card([&] {
    begin_capture();
    int status = 0;
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(nullptr, &status));
    EXPECT_EQ(status_of(stream), 1) << "the question ended the capture";
    OK(launch(builtin("sublet_busy"), {1}, other));
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, launch(builtin("sublet_busy"), {1}));
    is_lost();
  });
}

TEST_F(Captured, UnsafeCallsNeedARelaxedThread) {
  run_on_card([&] {
    CUevent event = nullptr;
    CUdeviceptr data;
    int mode = 2;
    OK(cuEventCreate(&event, 0));
    begin_capture();
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(mode, 0);
    OK(cuEventQuery(event));
    OK(cuMemAlloc_v2(&data, 16));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(mode, 2);
    std::thread([&] {
      CUcontext context = nullptr;
      OK(cuDevicePrimaryCtxRetain(&context, 0));
      OK(cuCtxSetCurrent(context));
      IS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture(stream, &graph));
    }).join();
    EXPECT_EQ(status_of(stream), 1);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(event));
    is_lost();
  });
}

// A host function that waits, so that work is in the streams before any of it runs.
struct Gate {
  std::atomic<bool> open{false};
  void close(CUstream stream) {
    OK(cuLaunchHostFunc(
        stream, [](void* self) { static_cast<Gate*>(self)->open.wait(false); }, this));
  }
};

TEST_F(DriverTest, TimeBetweenEventsIsThatOfTheCard) {
  run_on_card([] {
    Gate gate;
    CUstream stream = nullptr;
    CUevent start = nullptr, end = nullptr;
    float elapsed = 0;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    const CUfunction busy = builtin("sublet_busy");
    gate.close(stream);
    OK(cuEventRecord(start, stream));
    for (int i = 0; i < 500; ++i) OK(launch(busy, {10'000}, stream));
    OK(cuEventRecord(end, stream));
    gate.open = true;
    gate.open.notify_all();
    OK(cuStreamSynchronize(stream));
    OK(cuEventElapsedTime_v2(&elapsed, start, end));
    EXPECT_NEAR(elapsed, 5.0F, 0.001F) << "threads that are late take time of the card";
  });
}

TEST_F(DriverTest, KernelsOfSeveralStreamsShareTheCard) {
  run_on_card([&] {
    Gate gate;
    CUstream streams[2];
    CUevent start[2], end[2];
    float elapsed = 0;
    const CUfunction busy = builtin("sublet_busy");
    for (int i = 0; i < 2; ++i) {
      OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
      OK(cuEventCreate(&start[i], 0));
      OK(cuEventCreate(&end[i], 0));
      gate.close(streams[i]);
      OK(cuEventRecord(start[i], streams[i]));
      OK(launch(busy, {100 * ms}, streams[i]));
      OK(cuEventRecord(end[i], streams[i]));
    }
    gate.open = true;
    gate.open.notify_all();
    OK(cuCtxSynchronize());
    for (int i = 0; i < 2; ++i) {
      OK(cuEventElapsedTime_v2(&elapsed, start[i], end[1 - i]));
      EXPECT_GT(elapsed, 0.0F) << "one kernel ended before the other one began";
    }
    const auto all = table_->processes();
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].device[0].busy_ns, 200 * ms) << "the card was busy with one kernel at a time";
  });
}

}  // namespace
}  // namespace simgpu
