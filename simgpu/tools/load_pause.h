// SPDX-License-Identifier: Apache-2.0
// The reaction of simgpu-load to requests to yield, by the public library: correct, or in one of the wrong ways that
// the daemon must handle.
#pragma once

#include "simgpu/tools/load.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

struct sublet_request;

namespace simgpu::tools {

// There is one for the process. Its callbacks run at the safe points, on the thread of the load.
class Pausing {
 public:
  Pausing(const CudaDriver& driver, Load& load, const LoadOptions& options);
  ~Pausing();
  Pausing(const Pausing&) = delete;
  Pausing& operator=(const Pausing&) = delete;

  void safe_point();
  std::uint64_t pauses() const { return pauses_; }                     // pauses from which the load was resumed
  std::chrono::nanoseconds yielded_in() const { return yielded_in_; }  // bytes freed the last time; 0: never

 private:
  static int on_pause(void* self, sublet_request* request);
  static int on_resume(void* self);
  int yield(sublet_request* request);
  int take_again();
  void hold_again();

  const CudaDriver& driver_;
  Load& load_;
  const OnPause mode_;
  std::uint64_t bytes_;  // bytes that the load has allocated again, if any
  bool registered_ = false;
  std::uint64_t pauses_ = 0;
  std::chrono::nanoseconds yielded_in_{0};
  std::thread again_;
  std::atomic<bool> going_on_ = false;
};

}  // namespace simgpu::tools
