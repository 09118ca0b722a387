// SPDX-License-Identifier: Apache-2.0
// The past of a running daemon as jobs: its leases, devices and tenants, as the API shows them. Gaps are told and never
// filled. Pure functions.
#pragma once

#include "lease/tenant.h"
#include "simulate/trace.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace sublet::simulate {

struct History {
  std::vector<Job> jobs;       // in the order of their arrival
  std::vector<Bytes> devices;  // by index
  std::vector<core::Tenant> tenants;
  Time from, to;                   // the part of the period of which something is known
  Duration gaps{};                 // of it: the daemon had no readings
  std::vector<std::string> notes;  // one sentence each: what is not known, and how it counts here
};

// `past`: {"from", "to", "leases", "devices", "tenants", "gaps"}. `leases` as of /v1/leases?all=true, at least those
// that lived in the period; `whole`: there are no older ones. `gaps` as of /v1/report; null: not known.
Result<History> read_history(const nlohmann::json& past);

}  // namespace sublet::simulate
