// SPDX-License-Identifier: Apache-2.0
// Checkpoints of other processes (or of the caller's own), on the caller's side.
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "driver.h"
#include "simgpu/table/control.h"

using namespace simgpu;

namespace {

constexpr std::uint64_t first_version = 12080, first_version_with_pairs = 13000;

template <typename Args>
bool all_zero(const Args* args) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(args);
  return !args || std::all_of(bytes, bytes + sizeof(Args), [](unsigned char byte) { return byte == 0; });
}

// Asks the kernel whether the caller may read the process's memory, by opening a file that needs this right: the same
// user while the process is dumpable, or CAP_SYS_PTRACE. The answer also tells whether the process exists.
CUresult check_right(int pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/environ", pid);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) return ::close(fd), CUDA_SUCCESS;
  return errno == ENOENT || errno == ESRCH ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OPERATING_SYSTEM;
}

// Without the lock: an answer may take minutes, or never come.
CUresult ask(int pid, const ControlRequest& request, bool patient, std::uint64_t* value = nullptr) {
  using Kind = ControlAnswer::Kind;
  auto& d = driver();
  if (d.table->get(Setting::driver_version) < first_version) return CUDA_ERROR_NOT_SUPPORTED;
  if (pid <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = check_right(pid); refused != CUDA_SUCCESS) return refused;
  const ControlAnswer answer = d.table->ask(static_cast<std::uint32_t>(pid), *d.process, request, patient);
  switch (answer.kind) {
    case Kind::answered: break;
    case Kind::busy: return CUDA_ERROR_ILLEGAL_STATE;
    case Kind::ended: return CUDA_ERROR_OPERATING_SYSTEM;
    case Kind::nobody: return CUDA_ERROR_NOT_INITIALIZED;
  }
  if (value) *value = answer.value;
  return static_cast<CUresult>(answer.result);
}

int card_of(const CUuuid& uuid) {
  const Table& table = *driver().table;
  for (const unsigned d : table.places())
    if (std::memcmp(table.device(d).uuid.data(), uuid.bytes, sizeof uuid.bytes) == 0) return static_cast<int>(d);
  return -1;
}

// The cards that the caller names. The caller may name the cards, but no other cards in their place.
CUresult named_cards(const CUcheckpointRestoreArgs* args, std::uint64_t& cards) {
  cards = 0;
  if (!args || all_zero(args)) return CUDA_SUCCESS;
  CUcheckpointRestoreArgs rest = *args;
  rest.gpuPairs = nullptr;
  rest.gpuPairsCount = 0;
  if (!all_zero(&rest) || driver().table->get(Setting::driver_version) < first_version_with_pairs)
    return CUDA_ERROR_INVALID_VALUE;
  if ((args->gpuPairs == nullptr) != (args->gpuPairsCount == 0) || args->gpuPairsCount > max_places)
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < args->gpuPairsCount; ++i) {
    const int from = card_of(args->gpuPairs[i].oldUuid), to = card_of(args->gpuPairs[i].newUuid);
    if (from < 0 || to < 0 || (cards >> from & 1) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (from != to) return CUDA_ERROR_NOT_SUPPORTED;
    cards |= std::uint64_t{1} << from;
  }
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_API cuCheckpointProcessGetState(int pid, CUprocessState* state) {
  SIMGPU_ENTER_OUTSIDE(cuCheckpointProcessGetState);
  if (!state) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t value = 0;
  const CUresult result = ask(pid, {ControlOperation::state, 0, 0, 0}, true, &value);
  if (result == CUDA_SUCCESS) *state = static_cast<CUprocessState>(value);
  return result;
}

SIMGPU_API cuCheckpointProcessGetRestoreThreadId(int pid, int* tid) {
  SIMGPU_ENTER_OUTSIDE(cuCheckpointProcessGetRestoreThreadId);
  if (!tid) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t value = 0;
  const CUresult result = ask(pid, {ControlOperation::thread, 0, 0, 0}, true, &value);
  if (result == CUDA_SUCCESS) *tid = static_cast<int>(value);
  return result;
}

SIMGPU_API cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* args) {
  SIMGPU_ENTER_OUTSIDE(cuCheckpointProcessLock);
  CUcheckpointLockArgs rest = args ? *args : CUcheckpointLockArgs{};
  rest.timeoutMs = 0;
  if (!all_zero(&rest)) return CUDA_ERROR_INVALID_VALUE;
  return ask(pid, {ControlOperation::lock, args ? args->timeoutMs : 0, 0, 0}, false);
}

SIMGPU_API cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs* args) {
  SIMGPU_ENTER_OUTSIDE(cuCheckpointProcessCheckpoint);
  if (!all_zero(args)) return CUDA_ERROR_INVALID_VALUE;
  return ask(pid, {ControlOperation::checkpoint, 0, 0, 0}, false);
}

SIMGPU_API cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* args) {
  SIMGPU_ENTER_OUTSIDE(cuCheckpointProcessRestore);
  std::uint64_t cards = 0;
  if (const CUresult refused = named_cards(args, cards); refused != CUDA_SUCCESS) return refused;
  return ask(pid, {ControlOperation::restore, 0, cards, 0}, false);
}

SIMGPU_API cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs* args) {
  SIMGPU_ENTER_OUTSIDE(cuCheckpointProcessUnlock);
  if (!all_zero(args)) return CUDA_ERROR_INVALID_VALUE;
  return ask(pid, {ControlOperation::unlock, 0, 0, 0}, false);
}
