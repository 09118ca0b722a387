// SPDX-License-Identifier: Apache-2.0
// The parts of the memory that tenants are entitled to at a moment, and what they held of them over time.
#pragma once

#include "lease/tenant.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sublet::simulate {

// The wish of a tenant at a moment, in bytes.
struct Wish {
  double guarantee = 0;  // of its own
  double weight = 1;
  double wants = 0;  // holds and waits for
};

// First each gets its guarantee, as far as it wants it; then the rest goes by weight to those that want more. Nobody
// gets more than it wants.
std::vector<double> divide(double capacity, const std::vector<Wish>& wishes);

// True if a tenant has a parent or a limit: parts of a moment do not know these.
bool is_nested_or_limited(const std::vector<core::Tenant>& tenants);

// The sums of the tenants over time. Their parts count side by side, so that none are told beside parents or limits.
class TenantSums {
 public:
  struct Sum {
    double guarantee = 0, weight = 1;
    std::int64_t holds = 0, wants = 0;  // bytes now; of all its jobs that have arrived and not ended
    double held = 0, entitled = 0;      // bytes × seconds
    Duration since{};                   // `held` counts up to then
    std::size_t asked = 0, served = 0;  // jobs that arrived within the guarantee, and those that started in time
    Duration latest{};                  // longest time beyond the predicted one
  };

  TenantSums(const std::vector<core::Tenant>& tenants, Bytes capacity, std::size_t devices);

  Sum& of(const std::string& tenant) { return sums_[tenant]; }
  // True if the tenant may still ask for so much within its guarantee.
  bool within(const std::string& tenant, std::int64_t bytes) const;
  bool has_parts() const { return has_parts_; }
  // From `now` on it holds so much more.
  static void hold(Sum& tenant, std::int64_t more, Duration now);
  // The tenants wanted as much as now for so long.
  void entitle(Duration time);
  // Bytes × seconds that each has held, by name; empty if there are more tenants.
  std::vector<double> held(Duration now, std::size_t most);
  const std::map<std::string, Sum>& all() const { return sums_; }

 private:
  std::map<std::string, Sum> sums_;
  double capacity_;
  bool has_parts_;
};

}  // namespace sublet::simulate
