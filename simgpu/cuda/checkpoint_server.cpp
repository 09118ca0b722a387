// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "checkpoint.h"
#include "door.h"
#include "driver.h"
#include "transfer.h"
#include "work.h"

namespace simgpu {
namespace {

// bytes that a parked process keeps on each card where it has a context
constexpr std::uint64_t residue_bytes = 4 << 20;
constexpr std::uint64_t owed_ns = 100'000;  // shorter waits are added to the next wait
constexpr int first_version_that_refuses_gently = 13000;

bool traced() {
  char text[4096];
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (!file) return false;
  text[std::fread(text, 1, sizeof text - 1, file)] = 0;
  std::fclose(file);
  const char* at = std::strstr(text, "TracerPid:");
  return at && std::strtol(at + std::strlen("TracerPid:"), nullptr, 10) != 0;
}

// Paces copies at the rates of the driver and of the cards' links.
class Pace {
 public:
  Pace(Setting fixed_us, Setting bandwidth, bool outward)
      : rate_(driver().table->get(bandwidth)), outward_(outward), due_(now_ns()) {
    due_ += driver().table->get(fixed_us) * 1000;
    sleep_until_ns(due_);
  }
  void move(unsigned device, std::uint64_t bytes) {
    if (rate_ != 0) due_ += static_cast<std::uint64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(rate_));
    due_ = std::max(due_, book_link(device, outward_, bytes));
    if (due_ > now_ns() + owed_ns) sleep_until_ns(due_);
  }

 private:
  const std::uint64_t rate_;
  const bool outward_;
  std::uint64_t due_;
};

// All functions run on the one thread. While the door is closed and no call is inside, the driver's state belongs to
// this thread alone.
class Server {
 public:
  [[noreturn]] void serve(sem_t* ready);

 private:
  using Memory = std::vector<std::shared_ptr<Physical>>;
  CUresult carry_out(const ControlRequest& request, std::uint64_t& value);
  CUresult lock(std::uint64_t timeout_ms);
  CUresult checkpoint();
  CUresult restore(std::uint64_t named_devices);
  CUresult unlock();

  bool drained(std::uint64_t timeout_ms) const;
  CUresult cannot_be_parked(const Memory& memory) const;
  CUresult move_all(const Memory& memory, Pace& pace, const std::optional<Fault>& fault, CUresult code) const;
  bool take_back() const;
  void give_up() const;
  std::optional<Fault> meet(FaultKind kind) const;
  void hang_on(FaultKind kind) const;
  bool card_lost() const;
  void become(CUprocessState state);

  const std::uint32_t thread_id_ = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  CUprocessState state_ = CU_PROCESS_STATE_RUNNING;
  bool restore_failed_ = false;                   // no later restore can succeed, whatever is free then
  std::array<std::uint64_t, max_places> held_{};  // bytes of each card before the checkpoint freed them
  std::array<std::uint64_t, max_places> kept_{};  // the part of `bytes` that is contexts
};

void Server::become(CUprocessState state) {
  state_ = state;
  driver().process->publish(static_cast<ControlState>(state));
}

std::optional<Fault> Server::meet(FaultKind kind) const {
  std::uint64_t cards = 0;
  for (unsigned d = 0; d < max_places; ++d)
    if (held_[d] != 0 || driver().process->charged(d) != 0) cards |= driver().table->concerned(static_cast<int>(d));
  return driver().table->meet_on(kind, cards);
}

void Server::hang_on(FaultKind kind) const {
  if (const auto fault = meet(kind)) hang(kind, fault->device, fault->duration_ns);
}

bool Server::card_lost() const {
  for (unsigned d = 0; d < max_places; ++d)
    if ((held_[d] != 0 || driver().process->charged(d) != 0) && !driver().table->is_usable(d)) return true;
  return meet(FaultKind::device_lost).has_value();
}

// Tells whether, within the time, all calls inside have returned and all their work is done.
bool Server::drained(std::uint64_t timeout_ms) const {
  const std::uint64_t end = timeout_ms == 0 ? ~std::uint64_t{0} : now_ns() + timeout_ms * 1'000'000;
  for (;;) {
    if (nobody_inside()) {
      const Lock inside(driver_mutex());
      bool idle_everywhere = true;
      for (const auto* contexts : {&driver().primary, &driver().created})
        for (const auto& context : *contexts) idle_everywhere &= !context->alive || idle(*context);
      if (idle_everywhere) return true;
    }
    if (now_ns() >= end) return false;
    sleep_until_ns(std::min(end, now_ns() + 500'000));
  }
}

CUresult Server::lock(std::uint64_t timeout_ms) {
  hang_on(FaultKind::lock_hang);
  if (state_ != CU_PROCESS_STATE_RUNNING) return CUDA_ERROR_ILLEGAL_STATE;
  if (traced()) return CUDA_ERROR_OPERATING_SYSTEM;
  driver().process->block_siblings();
  close_door();
  if (!drained(timeout_ms)) {
    open_door();
    driver().process->let_siblings_go();
    return CUDA_ERROR_NOT_READY;
  }
  become(CU_PROCESS_STATE_LOCKED);
  return CUDA_SUCCESS;
}

CUresult Server::unlock() {
  hang_on(FaultKind::unlock_hang);
  if (state_ != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  become(CU_PROCESS_STATE_RUNNING);
  open_door();
  driver().process->let_siblings_go();
  return CUDA_SUCCESS;
}

// Reasons against a checkpoint that only the driver in the process can know: memory that others share, managed memory,
// cards tied together, a context with an error.
CUresult Server::cannot_be_parked(const Memory& memory) const {
  const Lock inside(driver_mutex());
  for (const auto& physical : memory)
    if (physical->exported()) return CUDA_ERROR_NOT_SUPPORTED;
  for (const auto& [base, range] : driver().addresses.all()) {
    if (range->kind == RangeKind::managed) return CUDA_ERROR_NOT_SUPPORTED;
    for (const auto& [at, mapping] : range->mappings)
      for (const auto& [card, flags] : mapping.access)
        if (card != mapping.physical->device && flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  }
  for (const auto* contexts : {&driver().primary, &driver().created})
    for (const auto& context : *contexts) {
      if (!context->alive) continue;
      if (!context->peers.empty()) return CUDA_ERROR_NOT_SUPPORTED;
      if (const int error = context->error.load()) return static_cast<CUresult>(error);
    }
  return CUDA_SUCCESS;
}

// Sleeps for the time that the whole move takes. A fault ends the move after its share.
CUresult Server::move_all(const Memory& memory, Pace& pace, const std::optional<Fault>& fault, CUresult code) const {
  std::uint64_t all = 0, moved = 0;
  for (const auto& physical : memory) all += physical->bytes;
  const std::uint64_t end = fault ? all / 100 * static_cast<std::uint64_t>(std::max(fault->after, 0)) : all;
  for (const auto& physical : memory)
    for (std::uint64_t at = 0; at < physical->bytes;) {
      if (moved >= end && fault) return code;
      const std::uint64_t part = std::min(physical->bytes - at, link_piece);
      pace.move(physical->device, part);
      at += part, moved += part;
    }
  return fault ? code : CUDA_SUCCESS;
}

void Server::give_up() const {
  for (unsigned d = 0; d < max_places; ++d)
    if (held_[d] != kept_[d]) driver().process->discharge(d, held_[d] - kept_[d]);
}

// Takes all memory on all cards, or none.
bool Server::take_back() const {
  for (unsigned d = 0; d < max_places; ++d) {
    if (held_[d] == kept_[d] || driver().process->charge(d, held_[d] - kept_[d])) continue;
    while (d-- > 0)
      if (held_[d] != kept_[d]) driver().process->discharge(d, held_[d] - kept_[d]);
    return false;
  }
  return true;
}

CUresult Server::checkpoint() {
  hang_on(FaultKind::checkpoint_hang);
  if (state_ != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  if (traced()) return CUDA_ERROR_OPERATING_SYSTEM;
  auto& d = driver();
  const auto fault = meet(FaultKind::checkpoint_fail);
  const auto code = fault && fault->argument != 0 ? static_cast<CUresult>(fault->argument) : CUDA_ERROR_UNKNOWN;
  if (fault && fault->after < 0) return code;
  const Memory memory = Physical::all();
  if (const CUresult refused = cannot_be_parked(memory); refused != CUDA_SUCCESS) {
    if (d.table->get(Setting::driver_version) < first_version_that_refuses_gently) become(CU_PROCESS_STATE_FAILED);
    return refused;
  }
  Pace pace(Setting::checkpoint_us, Setting::checkpoint_bandwidth, true);
  CUresult result = move_all(memory, pace, fault, code);
  if (result == CUDA_SUCCESS && card_lost()) result = CUDA_ERROR_UNKNOWN;
  try {
    if (result == CUDA_SUCCESS)
      for (const auto& physical : memory) physical->park();
  } catch (const std::bad_alloc&) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) {
    become(CU_PROCESS_STATE_FAILED);
    return result;
  }
  for (unsigned i = 0; i < max_places; ++i) {
    held_[i] = d.process->charged(i);
    kept_[i] = std::min(held_[i], residue_bytes);
  }
  give_up();
  become(CU_PROCESS_STATE_CHECKPOINTED);
  return CUDA_SUCCESS;
}

CUresult Server::restore(std::uint64_t named_devices) {
  hang_on(FaultKind::restore_hang);
  if (restore_failed_) return CUDA_ERROR_OPERATING_SYSTEM;
  if (state_ != CU_PROCESS_STATE_CHECKPOINTED) return CUDA_ERROR_ILLEGAL_STATE;
  if (traced() || meet(FaultKind::restore_refused)) return CUDA_ERROR_OPERATING_SYSTEM;
  for (unsigned i = 0; i < max_places; ++i)
    if (named_devices != 0 && held_[i] != 0 && (named_devices >> i & 1) == 0) return CUDA_ERROR_INVALID_VALUE;
  restore_failed_ = true;  // reset after a success
  if (card_lost()) return CUDA_ERROR_UNKNOWN;
  const auto fault = meet(FaultKind::restore_fail);
  const auto code = fault && fault->argument != 0 ? static_cast<CUresult>(fault->argument) : CUDA_ERROR_OUT_OF_MEMORY;
  if (!take_back()) return CUDA_ERROR_OUT_OF_MEMORY;
  const Memory memory = Physical::all();
  Pace pace(Setting::restore_us, Setting::restore_bandwidth, false);
  if (const CUresult result = move_all(memory, pace, fault, code); result != CUDA_SUCCESS) {
    give_up();
    return result;
  }
  try {
    for (const auto& physical : memory) physical->unpark();
  } catch (const std::bad_alloc&) {
    give_up();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ::malloc_trim(0);  // the driver's host copies go back to the system; no allocator keeps them
  held_.fill(0);
  kept_.fill(0);
  restore_failed_ = false;
  become(CU_PROCESS_STATE_LOCKED);
  return CUDA_SUCCESS;
}

CUresult Server::carry_out(const ControlRequest& request, std::uint64_t& value) {
  driver().process->wait_for_siblings();
  switch (request.operation) {
    case ControlOperation::state:
      hang_on(FaultKind::state_hang);
      value = static_cast<std::uint64_t>(state_);
      return CUDA_SUCCESS;
    case ControlOperation::thread: value = thread_id_; return CUDA_SUCCESS;
    case ControlOperation::lock: return lock(request.argument);
    case ControlOperation::checkpoint: return checkpoint();
    case ControlOperation::restore: return restore(request.devices);
    case ControlOperation::unlock: return unlock();
    case ControlOperation::none: break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

void Server::serve(sem_t* ready) {
  // The same name as the vendor's thread, which users look for: "cuda" and hexadecimal digits.
  char name[16];
  std::snprintf(name, sizeof name, "cuda%08x", thread_id_);
  ::prctl(PR_SET_NAME, name);
  driver().process->serve(thread_id_);
  ::sem_post(ready);
  for (;;) {
    const ControlRequest request = driver().process->next_request();
    std::uint64_t value = 0;
    const CUresult result = carry_out(request, value);
    driver().process->answer(request, result, value);
  }
}

void* run(void* ready) {
  static auto* server = new Server;
  server->serve(static_cast<sem_t*>(ready));
}

}  // namespace

void serve_checkpoints() {
  // Signals of the program are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, std::size_t{1} << 20);
  pthread_t thread;
  // Never destroyed: the thread may still be inside sem_post when this thread continues.
  static auto* ready = new sem_t;
  ::sem_init(ready, 0, 0);
  // Without the thread everything works except checkpoints: other processes see that this process serves none.
  if (pthread_create(&thread, &attributes, &run, ready) == 0) {
    while (::sem_wait(ready) != 0) {
    }
  }
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace simgpu
