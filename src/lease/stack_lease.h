// SPDX-License-Identifier: Apache-2.0
// The leases of stacks, known by their names: src/stacks makes them, with the tag and consumer "stack-NAME" and a
// token.
#pragma once

#include "lease/lease.h"

#include <string_view>

namespace sublet::core {

// The name of the stack that the lease belongs to; "": it belongs to none.
inline std::string_view stack_of(const Lease& lease) {
  constexpr std::string_view prefix = "stack-";
  const bool is_named = lease.consumer == lease.tag && lease.tag.starts_with(prefix);
  if (lease.owner.kind != OwnerKind::token || !is_named) return {};
  return std::string_view(lease.tag).substr(prefix.size());
}

}  // namespace sublet::core
