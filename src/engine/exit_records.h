// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"

#include <functional>
#include <string>

namespace sublet::engine {

// Removes the exit records in `dir` of leases that nobody waits for any more (`keep` is false of them): a program that
// ended after its lease leaves one behind. What is no exit record is left alone. Blocks for the disk.
void sweep_exit_records(const std::string& dir, const std::function<bool(LeaseId)>& keep);

}  // namespace sublet::engine
