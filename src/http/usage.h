// SPDX-License-Identifier: Apache-2.0
// Who held what and who waited how long, added up lease by lease. A value: no I/O, any thread, one at a time.
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

  // Counts a lease, if any of its life lies in the window. A lease is held from its first grant to its end, but for the
  // time while it is parked; before it was last resized at the mean of the sizes that it had. What it held outside the
  // window is left out. What it keeps of its room while it is parked does not count. Its wait counts in full: from when
  // it was asked for to its first grant, to its end without one, or until now. Who waits to grow or to come back counts
  // as waiting, and as active too; for how long is not kept.
  void add(const core::Lease& lease);

  // [{name, leases, …}], the one that held most first.
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
