// SPDX-License-Identifier: Apache-2.0
// Takes snapshots through NVML. Loads and initialises NVML at the first use, and again after errors that only a restart
// repairs, such as a reloaded driver or a lost device. One thread. take() may hang for ever.
#pragma once

#include "gpu/facts.h"
#include "gpu/nvml_api.h"
#include "gpu/snapshot.h"
#include "gpu/topology.h"
#include "gpu/utilisation.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sublet::gpu {

class Sampler {
 public:
  explicit Sampler(std::string nvml_path, std::string proc_root = "/proc");
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Takes a snapshot. Never fails: errors are in the `problem` of the snapshot or of a device. The reader calls
  // judge().
  GpuSnapshot take();

 private:
  enum class Restart { no, later, at_once };  // in order of urgency

  bool start(GpuSnapshot& snapshot);
  void stop();
  void read_all(GpuSnapshot& snapshot);
  GpuDevice read_device(unsigned index);
  void read_facts(GpuDevice& device);
  void add_links(GpuSnapshot& snapshot);
  void read_mode(NvmlDevice handle, GpuDevice& device);
  std::vector<GpuDevice> read_slices(const GpuDevice& card);
  GpuDevice read_slice(const NvmlSlice& slice, const GpuDevice& card);
  Answer<NvmlMemory> memory_of(NvmlDevice handle, GpuDevice& device);
  void read_numbers(NvmlDevice handle, std::optional<unsigned> gpu_instance, GpuDevice& device);
  void note(NvmlCode code);

  std::string nvml_path_;
  std::string proc_root_;
  std::optional<NvmlApi> api_;
  std::optional<Utilisation> utilisation_;  // of `api_`
  std::optional<FactReader> facts_;         // the same
  std::int64_t started_ns_ = 0;
  std::string driver_version_;
  std::map<unsigned, NvmlIdentity> known_;  // by index, since the start; a lost device no longer tells its uuid
  std::map<std::string, Links> links_;      // by uuid, since the start; of the cards that were known by then
  std::map<std::string, std::vector<GpuDevice>> slices_;  // by uuid of the card: its slices when they were last listed
  std::set<std::string> has_memory_;                      // uuids of devices that ever told their own memory
  Restart restart_ = Restart::no;
};

}  // namespace sublet::gpu
