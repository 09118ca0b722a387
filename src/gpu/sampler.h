// SPDX-License-Identifier: Apache-2.0
// Takes snapshots through NVML and keeps NVML going: loads and initialises it when first asked, and anew
// after errors that only a fresh start mends (driver reloaded or upgraded, a card lost). One thread; take()
// may hang for ever.
#pragma once

#include "gpu/nvml_api.h"
#include "gpu/snapshot.h"

#include <map>
#include <optional>
#include <string>

namespace sublet::gpu {

class Sampler {
 public:
  explicit Sampler(std::string nvml_path, std::string proc_root = "/proc");
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Never fails: what went wrong is in the snapshot's `problem` or a device's. Not judged (judge() is the
  // reader's).
  GpuSnapshot take();

 private:
  enum class Restart { no, later, at_once };  // in order of urgency

  bool start(GpuSnapshot& snapshot);
  void stop();
  void read_all(GpuSnapshot& snapshot);
  GpuDevice read_device(unsigned index);
  void read_numbers(NvmlDevice handle, GpuDevice& device);
  void note(NvmlCode code);

  std::string nvml_path_;
  std::string proc_root_;
  std::optional<NvmlApi> api_;
  std::int64_t started_ns_ = 0;
  std::string driver_version_;
  std::map<unsigned, NvmlIdentity> known_;  // by index, since the start: a lost card no longer tells its uuid
  Restart restart_ = Restart::no;
};

}  // namespace sublet::gpu
