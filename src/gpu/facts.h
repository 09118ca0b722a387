// SPDX-License-Identifier: Apache-2.0
// Reads through NVML the figures of a device that decide nothing about memory: temperature, power, clocks, link, memory
// errors and critical events. Figures are read at most once a second. One thread. Any call may hang for ever.
#pragma once

#include "gpu/condition.h"
#include "gpu/nvml_api.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

namespace sublet::gpu {

class FactReader {
 public:
  // `api` outlives it.
  explicit FactReader(const NvmlApi& api);
  ~FactReader();
  FactReader(const FactReader&) = delete;
  FactReader& operator=(const FactReader&) = delete;

  // A figure that the driver does not support is asked for once for each device. `now_ns`: CLOCK_MONOTONIC.
  const Facts& read(NvmlDevice handle, int index, std::int64_t now_ns);

  // The figures of a device that the driver cannot name now: those of its last reading, and new events.
  const Facts& last(int index);

  // The NVML functions of the figures, one each. For tests.
  static constexpr std::size_t calls = 17;
  static const std::array<std::string_view, calls>& functions();

 private:
  struct Event {  // as the driver writes it
    NvmlDevice device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
  };
  struct Known {
    std::int64_t read_ns = 0;  // time of the last reading; 0: none
    NvmlDevice handle = nullptr;
    Facts facts{};
    std::array<bool, calls> unsupported{};  // by call
  };
  void ask(Known& known, std::size_t call) const;
  void take_events();

  std::array<void*, calls> found_{};
  int (*create_set_)(void**) = nullptr;
  int (*free_set_)(void*) = nullptr;
  int (*register_)(NvmlDevice, unsigned long long, void*) = nullptr;
  int (*wait_)(void*, Event*, unsigned) = nullptr;
  void* events_ = nullptr;
  std::map<int, Known> known_;  // by index
};

}  // namespace sublet::gpu
