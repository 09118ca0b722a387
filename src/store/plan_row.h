// SPDX-License-Identifier: Apache-2.0
// Preemption plans as rows of their own kind.
#pragma once

#include "lease/plan_record.h"
#include "store/store.h"

#include <vector>

namespace sublet::store {

inline constexpr std::string_view plan_kind = "preemption-plan";

CapabilityRow row_of(const core::PlanChange& change);
// The plans among these rows, by id. A row that cannot be read is skipped.
std::vector<core::PlanRecord> plans_in(const std::vector<CapabilityRow>& rows);

}  // namespace sublet::store
