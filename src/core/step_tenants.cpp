// SPDX-License-Identifier: Apache-2.0
#include "core/step_tenants.h"

namespace sublet::core {

Result<LeaseId> on(Step& step, const SetTenants& set) {
  step.state.tenants.by_name.clear();
  for (const Tenant& tenant : set.tenants) step.state.tenants.by_name.emplace(tenant.name, tenant);
  return LeaseId{};
}

}  // namespace sublet::core
