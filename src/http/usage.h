// SPDX-License-Identifier: Apache-2.0
// Adds up held memory and waiting times, lease by lease. A value: no I/O; not thread-safe.
#pragma once

#include "core/lease.h"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace sublet::http {

enum class UsageBy { user, consumer, tenant };

struct UsageWindow {
  Time from, to;
};

class Usage {
 public:
  Usage(UsageWindow window, UsageBy by) : window_(window), by_(by) {}

  const UsageWindow& window() const { return window_; }

  // Counts a lease whose life overlaps the window. Held time goes from the first grant to the end, without paused time;
  // until its last resize, a lease counts with its mean size. Time outside the window is left out, and so is the
  // residue of a paused lease. The wait counts in full: from the request to the first grant, to the end without a
  // grant, or until now. A lease that waits to grow or to resume counts as waiting and active.
  void add(const core::Lease& lease);

  // [{name, leases, …}], the largest holder first.
  nlohmann::json rows();
  nlohmann::json total();

 private:
  struct Sum {
    std::int64_t leases = 0, active = 0, waiting = 0;
    double held = 0, never_used = 0, paused = 0;  // MiB·s
    Bytes peak;
    std::vector<std::int64_t> waits_ms;
    std::map<std::string, std::int64_t> ended;  // by end reason
  };

  UsageWindow window_;
  UsageBy by_;
  std::map<std::string, Sum> sums_;
  Sum all_;

  void add(Sum& sum, const core::Lease& lease) const;
  static nlohmann::json row(Sum& sum);
};

}  // namespace sublet::http
