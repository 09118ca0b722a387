// SPDX-License-Identifier: Apache-2.0
// The ancestry of a verdict over time: parents that end stay in it. Pure functions.
#pragma once

#include "proc/process_record.h"

#include <vector>

namespace sublet::enforcer {

using Ancestry = std::vector<proc::Ancestor>;

// `known`: of earlier passes. `shown`: by the process table now, where a process whose parent ended has another one.
// Returns the known ancestry with the parent that has ended marked.
Ancestry keep_ancestry(Ancestry known, const Ancestry& shown);

// `traced`: by all sources. Returns it, or the known ancestry if that has a parent which no source knows any more.
// `taken`: which of both it is.
Ancestry merge_ancestry(Ancestry known, Ancestry traced, bool& taken);

}  // namespace sublet::enforcer
