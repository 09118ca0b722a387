// SPDX-License-Identifier: Apache-2.0
#include "simulate/devices.h"

#include <fmt/format.h>

namespace sublet::simulate {

std::string uuid_of(std::size_t device) { return fmt::format("GPU-{:05}", device); }

Bytes sum_of(const std::vector<Bytes>& sizes) {
  Bytes sum;
  for (const Bytes size : sizes) sum += size;
  return sum;
}

std::vector<core::DeviceReading> readings_of(const std::vector<Bytes>& sizes, Bytes link) {
  std::vector<core::DeviceReading> readings(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    readings[i].uuid = uuid_of(i);
    readings[i].name = "simulated";
    readings[i].index = static_cast<int>(i);
    readings[i].total = sizes[i];
    readings[i].link_per_second = link;
  }
  return readings;
}

}  // namespace sublet::simulate
