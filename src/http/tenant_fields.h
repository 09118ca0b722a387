// SPDX-License-Identifier: Apache-2.0
// An entry of the tree of tenants as JSON.
#pragma once

#include "http/body.h"
#include "lease/tenant.h"

#include <nlohmann/json.hpp>

#include <string>

namespace sublet::http {

nlohmann::json render_tenant(const core::Tenant& tenant);  // all fields; null: not stated

// A whole entry, with its name. `prefix`: of the names of fields in an error.
Result<core::Tenant> read_tenant(const nlohmann::json& body, const std::string& prefix);

// The entry with the fields that the body has; a field that is null is stated no more.
struct TenantChange {
  core::Tenant tenant;
  bool dry_run = false;
};
Result<TenantChange> change_tenant(const nlohmann::json& body, core::Tenant tenant);

}  // namespace sublet::http
