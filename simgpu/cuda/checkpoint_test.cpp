// SPDX-License-Identifier: Apache-2.0
// Parking an unmodified process from outside: the steps, and the refusals in each state and of each process.
#include "checkpoint_test.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>

#include <array>

#include "simgpu/tools/kernels.h"

namespace simgpu {
namespace {

TEST_F(CheckpointTest, AParkedProcessFreesTheCardAndRestoresItsBytes) {
  CUdeviceptr plain = 0, mapped = 0, pooled = 0;
  const pid_t pid = target(
      [&] {
        plain = filled(300 * mib, 7);
        std::vector<std::uint32_t> words(1 << 20);
        for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i * 2654435761U);
        OK(cuMemcpyHtoD_v2(plain + 8 * mib, words.data(), words.size() * 4));
        const auto properties = on_device(0);
        CUmemGenericAllocationHandle handle = 0;
        OK(cuMemCreate(&handle, 4 * mib, &properties, 0));
        OK(cuMemAddressReserve(&mapped, 4 * mib, 0, 0, 0));
        OK(cuMemMap(mapped, 4 * mib, 0, handle, 0));
        const auto access = read_write(0);
        OK(cuMemSetAccess(mapped, 4 * mib, &access, 1));
        OK(cuMemsetD32_v2(mapped, 9, mib));
        OK(cuMemAllocAsync(&pooled, mib, nullptr));
        OK(cuMemsetD32_v2(pooled, 11, mib / 4));
      },
      [&] {
        EXPECT_EQ(word_at(plain), 7u);
        for (std::uint32_t i = 0; i < 1U << 20; i += 1021) EXPECT_EQ(word_at(plain + 8 * mib + 4 * i), i * 2654435761U);
        EXPECT_EQ(word_at(mapped + 4 * mib - 4), 9u);
        EXPECT_EQ(word_at(pooled), 11u);
        OK(cuMemFree_v2(plain));
        EXPECT_EQ(cuMemFree_v2(plain), CUDA_ERROR_INVALID_VALUE);
      });
  const std::uint64_t before = table_->use(0).used();
  helper([&] { park(pid); });
  EXPECT_EQ(table_->use(0).used(), residue);
  EXPECT_EQ(table_->processes().at(0).state, ControlState::checkpointed);
  // Another program takes nearly all of the card, and overwrites the card's memory of the parked process.
  run_on_card([] { filled(900 * mib, 1); });
  helper([&] {
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_CHECKPOINTED);
    OK(cuCheckpointProcessRestore(pid, nullptr));
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_LOCKED);
    OK(cuCheckpointProcessUnlock(pid, nullptr));
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_RUNNING);
  });
  EXPECT_EQ(table_->use(0).used(), before);
  go_on();
  EXPECT_EQ(finished(pid), 0);
}

TEST_F(CheckpointTest, EachStateRefusesTheOtherSteps) {
  const pid_t pid = target([] { filled(mib, 1); });
  helper([&] {
    const auto refuses_all_but = [&](CUprocessState now, std::vector<bool> allowed) {
      EXPECT_EQ(state(pid), now);
      if (!allowed[0]) {
        IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessLock(pid, nullptr));
      }
      if (!allowed[1]) {
        IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessCheckpoint(pid, nullptr));
      }
      if (!allowed[2]) {
        IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessRestore(pid, nullptr));
      }
      if (!allowed[3]) {
        IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(pid, nullptr));
      }
      EXPECT_EQ(state(pid), now);
    };
    refuses_all_but(CU_PROCESS_STATE_RUNNING, {true, false, false, false});
    OK(cuCheckpointProcessLock(pid, nullptr));
    refuses_all_but(CU_PROCESS_STATE_LOCKED, {false, true, false, true});
    OK(cuCheckpointProcessCheckpoint(pid, nullptr));
    refuses_all_but(CU_PROCESS_STATE_CHECKPOINTED, {false, false, true, false});
    OK(cuCheckpointProcessRestore(pid, nullptr));
    refuses_all_but(CU_PROCESS_STATE_LOCKED, {false, true, false, true});
    OK(cuCheckpointProcessUnlock(pid, nullptr));
    // A second pass: nothing of the first remains.
    park(pid);
    resume(pid);
    refuses_all_but(CU_PROCESS_STATE_RUNNING, {true, false, false, false});
  });
}

TEST_F(CheckpointTest, ALockedProcessWaitsInsideItsCalls) {
  const pid_t pid = target([&] {
    std::thread([this] {
      for (;;) {
        int value = 0;
        EXPECT_EQ(cuDriverGetVersion(&value), CUDA_SUCCESS);
        ++board_->progress;
        std::size_t available = 0, total = 0;
        CUcontext context = nullptr;
        EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
        EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
        EXPECT_EQ(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
        ++board_->calls;
      }
    }).detach();
    until([&] { return board_->calls > 3; });
  });
  helper([&] {
    OK(cuCheckpointProcessLock(pid, nullptr));
    // The process may still count the call in progress. It then comes to a call that waits, and stays there.
    std::uint64_t calls = board_->calls;
    for (int step = 0; step < 50; ++step) {
      EXPECT_EQ(state(pid), CU_PROCESS_STATE_LOCKED);
      EXPECT_LE(board_->calls - calls, 1u);
    }
    OK(cuCheckpointProcessUnlock(pid, nullptr));
    calls = board_->calls;
    until([&] { return board_->calls > calls + 3; });
  });
}

TEST_F(CheckpointTest, ALockThatRunsOutOfTimeLeavesTheProcessRunning) {
  const pid_t pid = target(
      [] {
        const CUfunction busy = builtin(kernels::busy);
        OK(launch(busy, {3'600'000'000'000}));
      },
      [] {
        std::size_t available, total;
        OK(cuMemGetInfo_v2(&available, &total));
      });
  helper([&] {
    CUcheckpointLockArgs args{};
    args.timeoutMs = 20;
    IS(CUDA_ERROR_NOT_READY, cuCheckpointProcessLock(pid, &args));
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_RUNNING);
    IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(pid, nullptr));
  });
  go_on();
  EXPECT_EQ(finished(pid), 0);
}

TEST_F(CheckpointTest, ALockWaitsForWorkAndHostFunctions) {
  const pid_t pid = target([&] {
    const CUhostFn wait = [](void* board) { until([&] { return static_cast<Board*>(board)->answer != 0; }); };
    OK(cuLaunchHostFunc(nullptr, wait, board_));
  });
  const pid_t locker = start([&] {
    OK(cuInit(0));
    OK(cuCheckpointProcessLock(pid, nullptr));
    EXPECT_EQ(board_->answer, 1);
  });
  until([&] { return table_->raw().process[0].control.caller != 0 || table_->raw().process[1].control.caller != 0; });
  helper([&] { IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessLock(pid, nullptr)); });
  board_->answer = 1;
  EXPECT_EQ(finish(locker), 0);
  helper([&] { EXPECT_EQ(state(pid), CU_PROCESS_STATE_LOCKED); });
}

TEST_F(CheckpointTest, ARestoreWithoutMemoryIsFinal) {
  const pid_t pid = target([] { filled(600 * mib, 3); });
  helper([&] { park(pid); });
  Signal taken, free_it;
  const pid_t other = start([&] {
    begin();
    filled(600 * mib, 1);
    taken.give();
    free_it.wait();
  });
  taken.wait();
  helper([&] {
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuCheckpointProcessRestore(pid, nullptr));
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_CHECKPOINTED);
  });
  EXPECT_EQ(table_->use(0).used(), residue + 664 * mib);  // a failed restore takes no memory
  free_it.give();
  EXPECT_EQ(finish(other), 0);
  helper([&] {
    IS(CUDA_ERROR_OPERATING_SYSTEM, cuCheckpointProcessRestore(pid, nullptr));
    IS(CUDA_ERROR_OPERATING_SYSTEM, cuCheckpointProcessRestore(pid, nullptr));
    IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(pid, nullptr));
    IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessLock(pid, nullptr));
    IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessCheckpoint(pid, nullptr));
  });
}

TEST_F(CheckpointTest, MissingProcessesAndMissingDriversHaveDifferentErrors) {
  Signal ready;
  const pid_t plain = start([&] {
    ready.give();
    ::pause();
  });
  targets_.push_back(plain);
  ready.wait();
  helper([&] {
    CUprocessState found{};
    for (const int pid : {0, -1, out_of_range_pid}) {
      IS(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessGetState(pid, &found));
      IS(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessLock(pid, nullptr));
    }
    IS(CUDA_ERROR_NOT_INITIALIZED, cuCheckpointProcessGetState(plain, &found));
    IS(CUDA_ERROR_NOT_INITIALIZED, cuCheckpointProcessLock(plain, nullptr));
    IS(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessGetState(::getpid(), nullptr));
  });
  run([&] { IS(CUDA_ERROR_NOT_INITIALIZED, cuCheckpointProcessLock(plain, nullptr)); });
}

TEST_F(CheckpointTest, UnknownWordsOfTheArgumentsMustBeZero) {
  const pid_t pid = target([] {});
  helper([&] {
    CUcheckpointLockArgs lock{};
    lock.reserved1[6] = 1;
    IS(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessLock(pid, &lock));
    CUcheckpointCheckpointArgs checkpoint{{1}};
    IS(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessCheckpoint(pid, &checkpoint));
    CUcheckpointUnlockArgs unlock{{0, 1}};
    IS(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessUnlock(pid, &unlock));
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_RUNNING);
  });
}

TEST_F(CheckpointTest, ARestoreMayNameTheCardsButNotOtherOnes) {
  const pid_t pid = target([] { filled(mib, 1); });
  helper([&] {
    park(pid);
    std::array<CUuuid, 2> cards{};
    for (int i = 0; i < 2; ++i) OK(cuDeviceGetUuid_v2(&cards.at(static_cast<std::size_t>(i)), i));
    CUcheckpointGpuPair pair{cards[0], cards[1]};
    CUcheckpointRestoreArgs args{};
    args.gpuPairs = &pair;
    args.gpuPairsCount = 1;
    IS(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessRestore(pid, &args));
    pair = {cards[1], cards[1]};
    IS(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessRestore(pid, &args));  // a card that the process was not on
    pair = {cards[0], cards[0]};
    table_->set(Setting::driver_version, 12090);
    IS(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessRestore(pid, &args));
    table_->set(Setting::driver_version, 13000);
    OK(cuCheckpointProcessRestore(pid, &args));
  });
}

TEST_F(CheckpointTest, AnOldDriverHasNoCheckpoints) {
  const pid_t pid = target([] {});
  table_->set(Setting::driver_version, 12060);
  helper([&] {
    CUprocessState found{};
    IS(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessGetState(pid, &found));
    IS(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessLock(pid, nullptr));
    void* function = nullptr;
    int status = 0;
    IS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress_v2("cuCheckpointProcessLock", &function, 13000, 0, &status));
  });
}

TEST_F(CheckpointTest, MemoryOfSeveralProcessesIsNotParked) {
  const pid_t pid = target([] {
    const auto properties = on_device(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate(&handle, 2 * mib, &properties, 0));
    int fd = -1;
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  });
  helper([&] {
    OK(cuCheckpointProcessLock(pid, nullptr));
    IS(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessCheckpoint(pid, nullptr));
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_LOCKED);
    OK(cuCheckpointProcessUnlock(pid, nullptr));
    // The first drivers with checkpoints left such a process in a bad state.
    table_->set(Setting::driver_version, 12080);
    OK(cuCheckpointProcessLock(pid, nullptr));
    IS(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessCheckpoint(pid, nullptr));
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_FAILED);
    IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(pid, nullptr));
  });
}

TEST_F(CheckpointTest, ManagedMemoryAndTiedCardsAreNotParked) {
  const std::vector<Body> bodies = {[] {
                                      CUdeviceptr managed = 0;
                                      OK(cuMemAllocManaged(&managed, mib, CU_MEM_ATTACH_GLOBAL));
                                    },
                                    [] {
                                      CUcontext other = nullptr;
                                      OK(cuDevicePrimaryCtxRetain(&other, 1));
                                      OK(cuCtxEnablePeerAccess(other, 0));
                                    }};
  for (const auto& body : bodies) {
    const pid_t pid = target(body);
    helper([&] {
      OK(cuCheckpointProcessLock(pid, nullptr));
      IS(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessCheckpoint(pid, nullptr));
      OK(cuCheckpointProcessUnlock(pid, nullptr));
    });
  }
}

TEST_F(CheckpointTest, ATracedProcessIsLeftAlone) {
  const pid_t pid = target([] { filled(mib, 1); });
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr), 0);
  helper([&] {
    IS(CUDA_ERROR_OPERATING_SYSTEM, cuCheckpointProcessLock(pid, nullptr));
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_RUNNING);
  });
}

TEST_F(CheckpointTest, AnotherUsersProcessIsLeftAlone) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can be two users";
  const auto become_nobody = [](bool dumpable) {
    OK(static_cast<CUresult>(::setuid(65534)));
    OK(static_cast<CUresult>(::prctl(PR_SET_DUMPABLE, dumpable ? 1 : 0)));
  };
  const pid_t of_root = target([] {}), closed = target([&] { become_nobody(false); }),
              open = target([&] { become_nobody(true); });
  helper([&] {
    OK(cuCheckpointProcessLock(closed, nullptr));  // root may do it
    OK(cuCheckpointProcessUnlock(closed, nullptr));
    become_nobody(true);
    CUprocessState found{};
    IS(CUDA_ERROR_OPERATING_SYSTEM, cuCheckpointProcessGetState(of_root, &found));
    IS(CUDA_ERROR_OPERATING_SYSTEM, cuCheckpointProcessLock(of_root, nullptr));
    IS(CUDA_ERROR_OPERATING_SYSTEM, cuCheckpointProcessLock(closed, nullptr));
    park(open);
    resume(open);
  });
}

TEST_F(CheckpointTest, OnlyWrittenBytesAreKeptInTheProcess) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is many times that of the process";
#endif
  const pid_t pid = target([] {
    CUdeviceptr memory = 0;
    OK(cuMemAlloc_v2(&memory, 800 * mib));
    OK(cuMemsetD32_v2(memory, 5, 100 * mib / 4));
    std::vector<std::uint32_t> words(16 * mib / 4);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i);
    OK(cuMemcpyHtoD_v2(memory + 200 * mib, words.data(), 16 * mib));
  });
  const std::uint64_t before = resident_bytes(pid);
  helper([&] { park(pid); });
  const std::uint64_t parked = resident_bytes(pid);
  EXPECT_GE(parked, before + 16 * mib);
  EXPECT_LT(parked, before + 20 * mib);
  helper([&] { resume(pid); });
  EXPECT_LT(resident_bytes(pid), parked - 8 * mib);
}

TEST_F(CheckpointTest, AProcessParksItself) {
  run([] {
    begin();
    const CUdeviceptr memory = filled(mib, 21);
    park(::getpid());
    resume(::getpid());
    EXPECT_EQ(word_at(memory), 21u);
  });
}

TEST_F(CheckpointTest, TheThreadThatRestoresIsOneOfTheProcess) {
  const pid_t pid = target([] {});
  helper([&] {
    int thread = 0;
    OK(cuCheckpointProcessGetRestoreThreadId(pid, &thread));
    EXPECT_NE(thread, pid);
    std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(thread) + "/comm");
    std::string name;
    file >> name;
    EXPECT_EQ(name.substr(0, 4), "cuda");
  });
}

}  // namespace
}  // namespace simgpu
