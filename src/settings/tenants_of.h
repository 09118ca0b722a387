// SPDX-License-Identifier: Apache-2.0
// The entries of a file with a tree of tenants, as the decisions have them.
#pragma once

#include "config/config.h"
#include "lease/tenant.h"

#include <vector>

namespace sublet::settings {

// In the order of the file. Keys that the file does not state are not stated in the entry either.
std::vector<core::Tenant> tenants_of(const config::Loaded& loaded);

}  // namespace sublet::settings
