// SPDX-License-Identifier: Apache-2.0
#include "simulate/samples.h"

#include <cmath>
#include <utility>

namespace sublet::simulate {
namespace {

constexpr std::size_t most_samples = 256;

Bytes mean(Bytes a, Bytes b) { return {a.count / 2 + b.count / 2}; }

Sample joined(Sample first, const Sample& second) {
  first.allocated = mean(first.allocated, second.allocated);
  first.fragmented = mean(first.fragmented, second.fragmented);
  first.waiting = (first.waiting + second.waiting) / 2;
  for (std::size_t i = 0; i < first.tenants.size(); ++i)
    first.tenants[i] = mean(first.tenants[i], second.tenants[i]);
  return first;
}

}  // namespace

void Samples::add(Duration at, Sums sums, Bytes fragmented) {
  const double length = std::chrono::duration<double>(at - begun_).count();
  if (length <= 0) return;
  const auto bytes = [length](double now, double before) { return Bytes{std::llround((now - before) / length)}; };
  last_.tenants.resize(sums.tenants.size());
  Sample& its = all_.emplace_back(Sample{begun_, bytes(sums.allocated, last_.allocated), fragmented,
                                         (sums.waiting - last_.waiting) / length});
  for (std::size_t i = 0; i < sums.tenants.size(); ++i)
    its.tenants.push_back(bytes(sums.tenants[i], last_.tenants[i]));
  last_ = std::move(sums);
  begun_ = at;
  if (all_.size() < most_samples) return;
  for (std::size_t i = 0; i < all_.size() / 2; ++i) all_[i] = joined(std::move(all_[2 * i]), all_[2 * i + 1]);
  all_.resize(all_.size() / 2);
  interval_ *= 2;
}

}  // namespace sublet::simulate
