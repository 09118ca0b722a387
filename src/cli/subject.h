// SPDX-License-Identifier: Apache-2.0
// `status TAG`: gathers what the daemon and /proc tell about one program or lease.
#pragma once

#include "cli/verb.h"

#include <string>

namespace sublet::cli {

// Shows the program with this tag, else the lease with this id or tag. Returns the exit code.
int show_subject(const Common& common, const std::string& name);

}  // namespace sublet::cli
