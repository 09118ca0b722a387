// SPDX-License-Identifier: Apache-2.0
// Processes that share memory: while one of them is locked, every call on its siblings waits.
#include <algorithm>
#include <array>

#include "checkpoint_test.h"
#include "fd_test.h"
#include "simgpu/tools/kernels.h"

namespace simgpu {
namespace {

class SiblingsTest : public CheckpointTest {
 protected:
  using Ends = std::array<int, 2>;
  static Ends channel() {
    Ends ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    return ends;
  }
  static void give_memory(int socket) {
    const auto properties = on_device(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle handle = 0;
    int fd = -1;
    OK(cuMemCreate(&handle, 2 * mib, &properties, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_fd(socket, fd);
    ::close(fd);
  }
  static void take_memory(int socket) {
    const int fd = receive_fd(socket);
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    ::close(fd);
  }
  // The first process exports memory to the second, and the second to the third.
  std::vector<pid_t> chain(const Body& then = [] {}) {
    const Ends one = channel(), two = channel();
    std::vector<pid_t> pids{target([&] { give_memory(one[0]); }, then)};
    pids.push_back(target([&] { take_memory(one[1]), give_memory(two[0]); }, then));
    pids.push_back(target([&] { take_memory(two[1]); }, then));
    for (const int fd : {one[0], one[1], two[0], two[1]}) ::close(fd);
    return pids;
  }

  // --- calls that wait

  pid_t asks(const Body& body) {
    return start([&, body] {
      OK(cuInit(0));
      body();
      ++board_->calls;
    });
  }
  const layout::ControlRecord& control(pid_t pid) const {
    const auto& slots = table_->raw().process;
    const auto its = [&](const auto& slot) { return layout::owner_pid(slot.owner) == static_cast<std::uint32_t>(pid); };
    return std::find_if(slots.begin(), slots.end(), its)->control;
  }
  // The test sends that many requests. The last request stays unanswered, although an unrelated process is parked and
  // resumed meanwhile.
  void waits(pid_t pid, std::uint64_t asked, pid_t unleased) {
    until([&] { return control(pid).request.load() >> 8 == asked; });
    helper([&] { park(unleased), resume(unleased); });
    EXPECT_EQ(control(pid).answered.load(), asked - 1);
    EXPECT_EQ(board_->calls.load(), 0U);
  }
};

TEST_F(SiblingsTest, CallsOnSiblingsWaitWhileOneIsLocked) {
  const std::vector<Body> calls{
      [&] { EXPECT_EQ(state(targets_[1]), CU_PROCESS_STATE_RUNNING); },
      [&] {
        int thread = 0;
        OK(cuCheckpointProcessGetRestoreThreadId(targets_[1], &thread));
      },
      [&] { IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessCheckpoint(targets_[1], nullptr)); },
      [&] { IS(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(targets_[1], nullptr)); },
      [&] { OK(cuCheckpointProcessLock(targets_[1], nullptr)); }};
  const auto pids = chain();
  const pid_t unleased = target([] {});
  std::uint64_t asked = 0;
  for (const Body& call : calls) {
    helper([&] {
      OK(cuCheckpointProcessLock(pids[0], nullptr));
      EXPECT_EQ(state(pids[0]), CU_PROCESS_STATE_LOCKED) << "it does not wait for itself";
    });
    board_->calls = 0;
    const pid_t asking = asks(call);
    waits(pids[1], ++asked, unleased);
    helper([&] { OK(cuCheckpointProcessUnlock(pids[0], nullptr)); });
    EXPECT_EQ(finish(asking), 0) << "carried out at once";
  }
  helper([&] { OK(cuCheckpointProcessUnlock(pids[1], nullptr)); });
}

TEST_F(SiblingsTest, SharingWithASiblingMakesASibling) {
  const auto pids = chain();
  const pid_t unleased = target([] {});
  helper([&] { OK(cuCheckpointProcessLock(pids[2], nullptr)); });
  const pid_t asking = asks([&] { EXPECT_EQ(state(pids[0]), CU_PROCESS_STATE_RUNNING); });
  waits(pids[0], 1, unleased);
  helper([&] { OK(cuCheckpointProcessUnlock(pids[2], nullptr)); });
  EXPECT_EQ(finish(asking), 0);
}

// No timeout runs while the process waits. Afterwards the process is locked, even if its caller is dead.
TEST_F(SiblingsTest, AWaitingLockIsCarriedOutInOrder) {
  const auto pids = chain();
  const pid_t unleased = target([] {});
  helper([&] { OK(cuCheckpointProcessLock(pids[0], nullptr)); });
  const pid_t asking = asks([&] {
    CUcheckpointLockArgs short_time{};
    short_time.timeoutMs = 1;
    cuCheckpointProcessLock(pids[1], &short_time);
  });
  waits(pids[1], 1, unleased);
  end(asking);
  helper([&] { OK(cuCheckpointProcessUnlock(pids[0], nullptr)); });
  until([&] { return control(pids[1]).state == static_cast<std::uint64_t>(ControlState::locked); });
  const pid_t now = asks([&] { EXPECT_EQ(state(pids[0]), CU_PROCESS_STATE_RUNNING); });
  waits(pids[0], 3, unleased);
  helper([&] { OK(cuCheckpointProcessUnlock(pids[1], nullptr)); });
  EXPECT_EQ(finish(now), 0);
}

TEST_F(SiblingsTest, TheDeathOfTheLockedProcessReleasesItsSiblings) {
  const auto pids = chain();
  helper([&] { OK(cuCheckpointProcessLock(pids[0], nullptr)); });
  const pid_t asking = asks([&] { EXPECT_EQ(state(pids[1]), CU_PROCESS_STATE_RUNNING); });
  until([&] { return control(pids[1]).request.load() >> 8 == 1; });
  end(pids[0]);
  std::erase(targets_, pids[0]);
  EXPECT_EQ(finish(asking), 0);
}

TEST_F(SiblingsTest, ALockTimeoutReleasesTheSiblings) {
  const Ends ends = channel();
  const pid_t busy = target([&] {
    give_memory(ends[0]);
    OK(launch(builtin(kernels::busy), {3'600'000'000'000}));
  });
  const pid_t other = target([&] { take_memory(ends[1]); });
  helper([&] {
    CUcheckpointLockArgs args{};
    args.timeoutMs = 20;
    IS(CUDA_ERROR_NOT_READY, cuCheckpointProcessLock(busy, &args));
    OK(cuCheckpointProcessLock(other, nullptr));
    OK(cuCheckpointProcessUnlock(other, nullptr));
  });
}

TEST_F(SiblingsTest, ProcessesWithoutSharedMemoryDoNotWait) {
  const Ends ends = channel();
  const pid_t alone = target([&] {  // imports its own export
    give_memory(ends[0]);
    take_memory(ends[1]);
  });
  const auto pids = chain();
  helper([&] {
    OK(cuCheckpointProcessLock(pids[0], nullptr));
    OK(cuCheckpointProcessLock(alone, nullptr));
    OK(cuCheckpointProcessUnlock(alone, nullptr));
    OK(cuCheckpointProcessUnlock(pids[0], nullptr));
  });
}

}  // namespace
}  // namespace simgpu
