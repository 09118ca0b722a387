// SPDX-License-Identifier: Apache-2.0
// Failing checkpoints: processes and helpers that stop or die, and faults.
#include <array>
#include <chrono>

#include "checkpoint_test.h"

namespace simgpu {
namespace {

// ------------------------------------------------------------------------------------------- processes that die

TEST_F(CheckpointTest, AStoppedProcessAnswersWhenItContinues) {
  const pid_t pid = target([] {});
  ::kill(pid, SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
  const pid_t asking = start([&] {
    OK(cuInit(0));
    OK(cuCheckpointProcessLock(pid, nullptr));
    board_->answer = 1;
  });
  const auto& control = table_->raw().process[0].control;
  until([&] { return control.request.load() >> 8 == 1; });
  EXPECT_EQ(control.answered, 0u);
  EXPECT_EQ(board_->answer, 0);
  ::kill(pid, SIGCONT);
  EXPECT_EQ(finish(asking), 0);
  EXPECT_EQ(board_->answer, 1);
}

TEST_F(CheckpointTest, AProcessThatDiesAtAnyStepLeavesNothingAndEndsTheCall) {
  const std::vector<Body> steps = {
      [&] { IS(CUDA_ERROR_OPERATING_SYSTEM, cuCheckpointProcessLock(targets_.back(), nullptr)); },
      [&] { IS(CUDA_ERROR_OPERATING_SYSTEM, cuCheckpointProcessCheckpoint(targets_.back(), nullptr)); },
      [&] { IS(CUDA_ERROR_OPERATING_SYSTEM, cuCheckpointProcessRestore(targets_.back(), nullptr)); },
      [&] { IS(CUDA_ERROR_OPERATING_SYSTEM, cuCheckpointProcessUnlock(targets_.back(), nullptr)); }};
  const std::array<FaultKind, 4> hangs = {FaultKind::lock_hang, FaultKind::checkpoint_hang, FaultKind::restore_hang,
                                          FaultKind::unlock_hang};
  for (std::size_t step = 0; step < steps.size(); ++step) {
    table_->clear_faults();
    const pid_t pid = target([] { filled(64 * mib, 1); });
    helper([&] {
      if (step >= 1) {
        OK(cuCheckpointProcessLock(pid, nullptr));
      }
      if (step >= 2) {
        OK(cuCheckpointProcessCheckpoint(pid, nullptr));
      }
      if (step >= 3) {
        OK(cuCheckpointProcessRestore(pid, nullptr));
      }
    });
    fault(hangs.at(step));
    const pid_t asking = start([&] {
      OK(cuInit(0));
      steps[step]();
    });
    until([&] { return table_->active_faults().at(0).hits == 1; });
    end(pid);
    std::erase(targets_, pid);
    EXPECT_EQ(finish(asking), 0) << step;
    EXPECT_EQ(table_->use(0).used(), 0u) << step;
  }
}

TEST_F(CheckpointTest, AHelperThatDiesLeavesTheProcessLockedForAnother) {
  const pid_t pid = target([] {});
  fault(FaultKind::lock_hang);
  const pid_t asking = start([&] {
    OK(cuInit(0));
    OK(cuCheckpointProcessLock(pid, nullptr));
  });
  until([&] { return table_->active_faults().at(0).hits == 1; });
  ::kill(asking, SIGKILL);
  finished_quietly(asking);
  // The call is still in progress, but its caller is dead.
  helper([&] { IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(pid, nullptr)); });
  table_->clear_faults();
  helper([&] {
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_LOCKED);
    OK(cuCheckpointProcessUnlock(pid, nullptr));
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_RUNNING);
  });
}

TEST_F(CheckpointTest, TheSecondOfTwoHelpersIsRefused) {
  const pid_t pid = target([] {});
  fault(FaultKind::checkpoint_hang);
  const pid_t first = start([&] {
    OK(cuInit(0));
    park(pid);
  });
  until([&] { return table_->active_faults().at(0).hits == 1; });
  helper([&] {
    IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessCheckpoint(pid, nullptr));
    IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(pid, nullptr));
  });
  table_->clear_faults();
  EXPECT_EQ(finish(first), 0);
}

// ------------------------------------------------------------------------------------------- errors

TEST_F(CheckpointTest, ACheckpointThatFailsAtOnceLeavesAllAsItWas) {
  CUdeviceptr memory = 0;
  const pid_t pid = target([&] { memory = filled(64 * mib, 4); }, [&] { EXPECT_EQ(word_at(memory), 4u); });
  const std::uint64_t before = table_->use(0).used();
  fault(FaultKind::checkpoint_fail, -1, CUDA_ERROR_OUT_OF_MEMORY);
  helper([&] {
    OK(cuCheckpointProcessLock(pid, nullptr));
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuCheckpointProcessCheckpoint(pid, nullptr));
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_LOCKED);
    OK(cuCheckpointProcessUnlock(pid, nullptr));
  });
  EXPECT_EQ(table_->use(0).used(), before);
  go_on();
  EXPECT_EQ(finished(pid), 0);
}

TEST_F(CheckpointTest, ACheckpointThatFailsHalfWayLeavesAFailedProcessWithItsMemory) {
  const pid_t pid = target([] { filled(64 * mib, 4); });
  const std::uint64_t before = table_->use(0).used();
  fault(FaultKind::checkpoint_fail, 50);
  helper([&] {
    OK(cuCheckpointProcessLock(pid, nullptr));
    IS(CUDA_ERROR_UNKNOWN, cuCheckpointProcessCheckpoint(pid, nullptr));
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_FAILED);
    IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessRestore(pid, nullptr));
    IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(pid, nullptr));
  });
  EXPECT_EQ(table_->use(0).used(), before);
  EXPECT_EQ(table_->device(0).link_bytes[1].load(), 32 * mib);
}

TEST_F(CheckpointTest, AFailedRestoreWithFreeMemoryIsFinalToo) {
  const pid_t pid = target([] { filled(64 * mib, 4); });
  helper([&] { park(pid); });
  fault(FaultKind::restore_fail, 50);
  helper([&] { IS(CUDA_ERROR_OUT_OF_MEMORY, cuCheckpointProcessRestore(pid, nullptr)); });
  table_->clear_faults();
  helper([&] { IS(CUDA_ERROR_OPERATING_SYSTEM, cuCheckpointProcessRestore(pid, nullptr)); });
  EXPECT_EQ(table_->use(0).used(), residue);
}

TEST_F(CheckpointTest, ARestoreThatIsRefusedIsNotFinal) {
  const pid_t pid = target([] { filled(64 * mib, 4); });
  helper([&] { park(pid); });
  fault(FaultKind::restore_refused);
  helper([&] {
    for (int i = 0; i < 2; ++i) IS(CUDA_ERROR_OPERATING_SYSTEM, cuCheckpointProcessRestore(pid, nullptr));
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_CHECKPOINTED);
  });
  table_->clear_faults();
  helper([&] { OK(cuCheckpointProcessRestore(pid, nullptr)); });
}

TEST_F(CheckpointTest, StateHangsAloneAndOtherProcessesDoNot) {
  const pid_t pid = target([] {}), other = target([] {});
  Fault hang;
  hang.kind = FaultKind::state_hang;
  hang.pid = static_cast<std::uint32_t>(pid);
  ASSERT_TRUE(table_->set_fault(hang, nullptr));
  const pid_t asking = start([&] {
    OK(cuInit(0));
    EXPECT_EQ(state(pid), CU_PROCESS_STATE_RUNNING);
  });
  until([&] { return table_->active_faults().at(0).hits == 1; });
  helper([&] {
    EXPECT_EQ(state(other), CU_PROCESS_STATE_RUNNING);
    park(other);
    resume(other);
  });
  table_->clear_faults();
  EXPECT_EQ(finish(asking), 0);
}

TEST_F(CheckpointTest, AFaultOfACardMeetsTheProcessesOnIt) {
  const pid_t first = target([] { filled(mib, 1); });
  const pid_t both = target([] {
    CUcontext other = nullptr;
    OK(cuDevicePrimaryCtxRetain(&other, 1));
  });
  Fault second_card;
  second_card.kind = FaultKind::checkpoint_fail;
  second_card.device = 1;
  ASSERT_TRUE(table_->set_fault(second_card, nullptr));
  helper([&] {
    park(first);
    OK(cuCheckpointProcessLock(both, nullptr));
    IS(CUDA_ERROR_UNKNOWN, cuCheckpointProcessCheckpoint(both, nullptr));
  });
}

TEST_F(CheckpointTest, ItTakesAsLongAsItsSettingsAndTheLinkSay) {
  const pid_t pid = target([] { filled(64 * mib, 4); });
  const auto took = [](const std::function<void()>& what) {
    const auto start = std::chrono::steady_clock::now();
    what();
    return std::chrono::steady_clock::now() - start;
  };
  using std::chrono::milliseconds;
  table_->set(Setting::checkpoint_bandwidth, 640 * mib);
  table_->set(Setting::checkpoint_us, 50'000);
  table_->set(Setting::link_bandwidth, 320 * mib);
  helper([&] {
    OK(cuCheckpointProcessLock(pid, nullptr));
    EXPECT_GE(took([&] { OK(cuCheckpointProcessCheckpoint(pid, nullptr)); }), milliseconds(150));
    // time of the link alone
    EXPECT_GE(took([&] { OK(cuCheckpointProcessRestore(pid, nullptr)); }), milliseconds(190));
  });
}

}  // namespace
}  // namespace simgpu
