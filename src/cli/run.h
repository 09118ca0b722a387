// SPDX-License-Identifier: Apache-2.0
// `run` for its own verb and for shims.
#pragma once

#include "cli/run_flags.h"

namespace sublet::cli {

// Runs `common.command` under a lease, or hands it to the daemon. Returns the exit code.
int run(const Common& common, const RunFlags& flags);

}  // namespace sublet::cli
