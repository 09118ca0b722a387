// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same everywhere: a seed gives one sequence, with any compiler and library.
#pragma once

#include "base/units.h"

#include <cstdint>

namespace sublet::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {  // splitmix64
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : next() % n; }
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(most - least + 1)));
  }
  bool chance(double percent) { return static_cast<double>(next() >> 11) * 0x1.0p-53 * 100 < percent; }
  Duration time(Duration least, Duration most) { return Duration(between(least.count(), most.count())); }
  template <typename Range>
  auto& pick(Range& range) {
    return range[below(range.size())];
  }

 private:
  std::uint64_t state_;
};

}  // namespace sublet::sim
