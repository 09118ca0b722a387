// SPDX-License-Identifier: Apache-2.0
// The rows of the store: an entry of the tree each, and the use of a tenant each. Pure functions.
#pragma once

#include "base/error.h"
#include "lease/tenant.h"
#include "store/store.h"

#include <string>
#include <string_view>

namespace sublet::tenants {

inline constexpr std::string_view row_kind = "tenant";
inline constexpr std::string_view use_row_kind = "tenant_use";

store::CapabilityRow to_row(const core::Tenant& tenant);
store::CapabilityRow to_row(const core::TenantUse& use);  // without data if nothing counts any more
Result<core::Tenant> tenant_from(const store::CapabilityRow& row);
Result<core::TenantUse> use_from(const store::CapabilityRow& row);

}  // namespace sublet::tenants
