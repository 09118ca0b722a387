// SPDX-License-Identifier: Apache-2.0
// Reads through NVML how busy devices and their processes are. The driver takes samples, up to one a second, so that
// the figures of a device are read at most once a second and reused in between. One thread. Any call may hang for ever.
#pragma once

#include "gpu/nvml_api.h"
#include "gpu/snapshot.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace sublet::gpu {

class Utilisation {
 public:
  // `api` outlives it.
  explicit Utilisation(const NvmlApi& api);

  // Sets `busy_percent` of the device and of its listed processes, and their `computing_percent`. A figure stays unset
  // if the driver does not tell. A driver that does not support a figure is asked for it once for each device.
  // `now_ns`: CLOCK_MONOTONIC.
  void read(NvmlDevice handle, GpuDevice& device, std::int64_t now_ns);

 private:
  struct Sample {  // as the driver writes it
    unsigned pid;
    unsigned long long timestamp_us;
    unsigned sm, memory, encoder, decoder;
  };
  static_assert(sizeof(Sample) == 32);
  struct Rates {  // as the driver writes it
    unsigned gpu, memory;
  };
  struct Work {                                  // of a process since the last reading
    std::optional<int> busy = 0, computing = 0;  // percent; unset: a sample has no such figure
    int sum = 0, samples = 0;                    // for the mean of `computing`
    void add(const Sample& sample);
  };
  struct Known {
    std::int64_t read_ns = 0;                                  // time of the last reading; 0: none
    std::uint64_t last_seen_us = 0;                            // newest sample of the last answer with a new one
    std::set<std::pair<unsigned, unsigned long long>> seen{};  // pid and stamp of samples that may be told again
    bool asks_device = true, asks_processes = true;            // false: the driver does not support it
    std::optional<int> percent;                                // of the device
    std::map<std::int32_t, Work> of_pid{};                     // of the processes that were listed then
  };

  void ask_device(NvmlDevice handle, Known& known) const;
  NvmlCode ask_samples(NvmlDevice handle, std::uint64_t since_us, std::vector<Sample>& samples) const;
  NvmlCode new_samples(NvmlDevice handle, Known& known, std::vector<Sample>& samples) const;
  void ask_processes(NvmlDevice handle, const GpuDevice& device, Known& known) const;

  int (*rates_)(NvmlDevice, Rates*) = nullptr;
  int (*samples_)(NvmlDevice, Sample*, unsigned*, unsigned long long) = nullptr;
  std::map<int, Known> known_;  // by index
};

}  // namespace sublet::gpu
