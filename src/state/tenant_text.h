// SPDX-License-Identifier: Apache-2.0
// The wording of guarantees and limits. Reads only.
#pragma once

#include "base/error.h"
#include "lease/reason_args.h"
#include "state/tenant_rights.h"

#include <string>
#include <vector>

namespace sublet::core {

// "the tenant vision has 6.0 GiB and may have 7.0 GiB: 2.0 GiB more are too much"
std::string bar_text(const State& state, const Lease& lease, const TenantBar& bar);
std::string bar_hint(const TenantBar& bar);
// The standing of a waiter's tenant with numbers: its guarantee, its share, and the limit that it waits for.
std::vector<std::string> tenant_helps(const State& state, const Rules& rules, const Lease& lease, Time now);
// Whether a lease with memory is within the guarantee of its tenant or borrows, with numbers. Empty: no tenant has a
// quota.
std::string holder_text(const State& state, const Lease& lease);
// Arguments of the pause cause `quota`.
ReasonArgs quota_args(const State& state, const Lease& preemptor, const Lease& victim);
Numbers bar_numbers(const TenantBar& bar);
// "2.5 devices", "1 device"
std::string format_devices(std::int64_t thousandths);
// "4.0 GiB and 1 device"; "none"
std::string format_amount(const TenantAmount& amount);

}  // namespace sublet::core
