// SPDX-License-Identifier: Apache-2.0
// The memory over the time of a run. Each sample is a mean over its time, so that short time slices do not look like
// long ones.
#pragma once

#include "base/units.h"

#include <cstddef>
#include <vector>

namespace sublet::simulate {

// The memory of all devices, on average from `at` to the next sample.
struct Sample {
  Duration at{};
  Bytes allocated;
  Bytes fragmented;  // at the end of that time
  double waiting = 0;
  std::vector<Bytes> tenants = {};  // memory of each, by name; empty: there are too many
};
inline constexpr std::size_t most_drawn_tenants = 12;

class Samples {
 public:
  // Sums over the run up to a moment.
  struct Sums {
    double allocated = 0;              // bytes × seconds
    double waiting = 0;                // jobs × seconds
    std::vector<double> tenants = {};  // bytes × seconds
  };

  Duration begun() const { return begun_; }             // of the sample that is taken now
  Duration ends() const { return begun_ + interval_; }  // it is due then
  // The sample is from begun() to `at`. There are never many: two of them become one.
  void add(Duration at, Sums sums, Bytes fragmented);
  std::vector<Sample> take() { return std::move(all_); }

 private:
  std::vector<Sample> all_;
  Duration begun_{}, interval_ = std::chrono::seconds(1);
  Sums last_;
};

}  // namespace sublet::simulate
