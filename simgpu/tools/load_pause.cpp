// SPDX-License-Identifier: Apache-2.0
#include "simgpu/tools/load_pause.h"

#include <fmt/format.h>
#include <sublet/sublet.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>

namespace simgpu::tools {
namespace {

// A driver may keep a little memory of a context that is destroyed.
constexpr std::uint64_t residue = 64ULL << 20;
constexpr auto look_interval = std::chrono::milliseconds(20);

std::atomic<bool> usr1 = false;
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

Pausing::Pausing(const CudaDriver& driver, Load& load, const LoadOptions& options)
    : driver_(driver),
      load_(load),
      mode_(options.on_pause),
      bytes_(std::max<std::uint64_t>(static_cast<std::uint64_t>(options.alloc.count) / 2, 2 * residue)) {
  if (mode_ == OnPause::not_asked) return;
  if (mode_ == OnPause::again_at_usr1) std::signal(SIGUSR1, [](int) { usr1 = true; });
  sublet_callbacks callbacks = SUBLET_CALLBACKS_INIT;
  callbacks.on_pause = on_pause;
  callbacks.on_resume = on_resume;
  callbacks.context = this;
  callbacks.residue_bytes = residue;
  registered_ = sublet_register(&callbacks) == SUBLET_OK;
  if (!registered_) fmt::print(stderr, "simgpu-load: it will not be asked to yield: {}\n", sublet_error());
}

Pausing::~Pausing() {
  if (again_.joinable()) again_.join();
  if (registered_) sublet_unregister();
}

void Pausing::safe_point() {
  if (registered_ && mode_ != OnPause::unresponsive) sublet_safe_point();
}

int Pausing::on_pause(void* self, sublet_request* request) { return static_cast<Pausing*>(self)->yield(request); }
int Pausing::on_resume(void* self) { return static_cast<Pausing*>(self)->take_again(); }

int Pausing::yield(sublet_request* request) {
  using Seconds = std::chrono::duration<double>;
  const auto began = std::chrono::steady_clock::now();
  try {
    if (mode_ == OnPause::late) std::this_thread::sleep_for(Seconds(request->deadline_seconds + 0.5));
    if (mode_ != OnPause::liar) load_.yield(mode_ == OnPause::half ? 50 : 100);
  } catch (const CudaError& error) {
    fmt::format_to_n(request->detail, sizeof request->detail - 1, "{}", error.what());
    return 1;
  }
  usr1 = false;
  if (mode_ == OnPause::again || mode_ == OnPause::again_at_usr1) again_ = std::thread([this] { hold_again(); });
  yielded_in_ = std::chrono::steady_clock::now() - began;
  fmt::print(stderr, "simgpu-load: yielded\n");
  return 0;
}

// After the daemon has seen the yield: usually after a second; on a busy machine only another process can tell.
void Pausing::hold_again() {
  try {
    for (int looks = 0; mode_ == OnPause::again_at_usr1 ? !usr1 : looks < 50; ++looks) {
      if (going_on_) return;
      std::this_thread::sleep_for(look_interval);
    }
    if (sublet_paused() == 0) return;
    driver_.retain_primary_context(driver_.device(0));
    const DevicePointer held = driver_.allocate(bytes_);
    fmt::print(stderr, "simgpu-load: holds memory again\n");
    while (sublet_paused() == 1 && !going_on_) std::this_thread::sleep_for(look_interval);
    driver_.free(held);
    driver_.release_primary_context(driver_.device(0));
  } catch (const CudaError& error) {
    fmt::print(stderr, "simgpu-load: cannot hold memory again: {}\n", error.what());
  }
}

int Pausing::take_again() {
  going_on_ = true;
  if (again_.joinable()) again_.join();
  going_on_ = false;
  try {
    load_.take_again();
  } catch (const CudaError& error) {
    fmt::print(stderr, "simgpu-load: cannot resume: {}\n", error.what());
    return 1;
  }
  ++pauses_;
  fmt::print(stderr, "simgpu-load: resumed\n");
  return 0;
}

}  // namespace simgpu::tools
