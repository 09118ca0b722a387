// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"

#include <functional>
#include <string>

namespace sublet::machine {

// Removes exit records and answers of leases that are not needed any more (`keep` is false) from the users'
// directories in `dir` (user_directory.h). A program that ended after its lease leaves such a record. Other files stay.
// Blocks on the disk.
void sweep_exit_records(const std::string& dir, const std::function<bool(LeaseId)>& keep);

}  // namespace sublet::machine
