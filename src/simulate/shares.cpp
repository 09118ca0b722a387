// SPDX-License-Identifier: Apache-2.0
#include "simulate/shares.h"

#include <algorithm>

namespace sublet::simulate {

std::vector<double> divide(double capacity, const std::vector<Wish>& wishes) {
  std::vector<double> parts(wishes.size());
  double left = capacity, guaranteed = 0;
  for (std::size_t i = 0; i < wishes.size(); ++i)
    guaranteed += parts[i] = std::min(wishes[i].guarantee, wishes[i].wants);
  if (guaranteed > capacity) {
    for (double& part : parts) part *= capacity / guaranteed;
    return parts;
  }
  left -= guaranteed;
  // Those whose wish is nearest for their weight are satisfied first.
  std::vector<std::size_t> order;
  double weights = 0;
  for (std::size_t i = 0; i < wishes.size(); ++i)
    if (wishes[i].wants > parts[i]) order.push_back(i), weights += wishes[i].weight;
  const auto level = [&](std::size_t i) { return (wishes[i].wants - parts[i]) / wishes[i].weight; };
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return level(a) < level(b); });
  for (const std::size_t i : order) {
    const double more = std::min(wishes[i].wants - parts[i], left * wishes[i].weight / weights);
    parts[i] += more, left -= more, weights -= wishes[i].weight;
  }
  return parts;
}

bool is_nested_or_limited(const std::vector<core::Tenant>& tenants) {
  return std::ranges::any_of(tenants, [](const core::Tenant& tenant) {
    return !tenant.parent.empty() || tenant.limit.stated() || tenant.live_leases;
  });
}

TenantSums::TenantSums(const std::vector<core::Tenant>& tenants, Bytes capacity, std::size_t devices)
    : capacity_(static_cast<double>(capacity.count)), has_parts_(!is_nested_or_limited(tenants)) {
  const double each = capacity_ / static_cast<double>(std::max<std::size_t>(devices, 1));
  for (const core::Tenant& tenant : tenants) {
    Sum& sum = sums_[tenant.name];
    sum.weight = tenant.weight / 1000.0;
    if (tenant.quota.bytes) sum.guarantee = static_cast<double>(tenant.quota.bytes->count);
    if (tenant.quota.thousandths) {
      const double by_devices = *tenant.quota.thousandths / 1000.0 * each;
      sum.guarantee = tenant.quota.bytes ? std::min(sum.guarantee, by_devices) : by_devices;
    }
  }
}

bool TenantSums::within(const std::string& tenant, std::int64_t bytes) const {
  const auto found = sums_.find(tenant);
  if (found == sums_.end()) return false;
  const Sum& sum = found->second;
  return static_cast<double>(sum.wants + bytes) <= sum.guarantee;
}

void TenantSums::hold(Sum& tenant, std::int64_t more, Duration now) {
  tenant.held += static_cast<double>(tenant.holds) * std::chrono::duration<double>(now - tenant.since).count();
  tenant.since = now;
  tenant.holds += more;
}

void TenantSums::entitle(Duration time) {
  if (!has_parts_) return;
  std::vector<Wish> wishes;
  for (const auto& [name, sum] : sums_) wishes.push_back({sum.guarantee, sum.weight, static_cast<double>(sum.wants)});
  const std::vector<double> parts = divide(capacity_, wishes);
  const double seconds = std::chrono::duration<double>(time).count();
  std::size_t i = 0;
  for (auto& [name, sum] : sums_) sum.entitled += parts[i++] * seconds;
}

std::vector<double> TenantSums::held(Duration now, std::size_t most) {
  std::vector<double> all;
  for (auto& [name, sum] : sums_) {
    hold(sum, 0, now);
    if (sums_.size() <= most) all.push_back(sum.held);
  }
  return all;
}

}  // namespace sublet::simulate
