// SPDX-License-Identifier: Apache-2.0
// The host on which the daemon runs.
#pragma once

#include "machine/host.h"

#include <memory>

namespace sublet::machine {

std::unique_ptr<Host> local_host();

}  // namespace sublet::machine
