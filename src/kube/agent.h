// SPDX-License-Identifier: Apache-2.0
// The agent: opens the doors, and keeps them open over restarts of the kubelet and of the daemon.
#pragma once

#include "kube/settings.h"

namespace sublet::kube {

// Runs until SIGTERM or SIGINT. Returns the exit status. Call it before any thread is started.
int run(Settings settings);

}  // namespace sublet::kube
