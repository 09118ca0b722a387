// SPDX-License-Identifier: Apache-2.0
// The tenants: the tree, what each holds now, and its use over time. Functions that take a State& are for the core
// alone; the others are for all readers (answers, metrics).
#pragma once

#include "base/units.h"
#include "lease/tenant.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::core {

struct State;

struct Tenants {
  std::map<std::string, Tenant, std::less<>> by_name;  // the entries
};

// What a tenant and all tenants below it have now.
struct TenantStanding {
  Bytes bytes;               // charged on all devices
  int thousandths = 0;       // of devices
  Bytes borrowed;            // the part of `bytes` beyond its quota; 0 without a quota
  int live = 0, queued = 0;  // leases
  Bytes parked;              // in the park ledger
};

// A name that is neither in the tree nor charged has an empty standing.
TenantStanding tenant_standing(const State& state, std::string_view name);
// The use that counts, to be stored.
TenantUse tenant_use(const State& state, std::string_view name, Time now);

}  // namespace sublet::core
