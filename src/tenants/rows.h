// SPDX-License-Identifier: Apache-2.0
// The rows of the store: an entry of the tree each, and the use of a tenant each. Pure functions.
#pragma once

#include "base/error.h"
#include "state/tenants.h"
#include "store/store.h"

#include <string>
#include <string_view>

namespace sublet::tenants {

inline constexpr std::string_view row_kind = "tenant";
inline constexpr std::string_view use_row_kind = "tenant_use";

store::CapabilityRow to_row(const core::Tenant& tenant);
// The use of an account up to `use.at`, and the memory that it has held from then on.
struct StoredUse {
  core::TenantUse use;
  core::TenantMemory held;
  Duration slot{};  // length of the slots of `use`; 0: it has none
  bool operator==(const StoredUse&) const = default;
};
store::CapabilityRow to_row(const StoredUse& stored);  // without data if nothing counts any more
// The use up to now.
core::TenantUse up_to(Time now, const StoredUse& stored, const core::Window& window);
Result<core::Tenant> tenant_from(const store::CapabilityRow& row);
Result<StoredUse> use_from(const store::CapabilityRow& row);

}  // namespace sublet::tenants
